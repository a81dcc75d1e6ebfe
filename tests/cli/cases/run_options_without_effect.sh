# an option without effect is refused wherever it was set; default values and
# values of a preset are accepted
export STREAMFP_REGISTRY=$PWD/runs.db
mkfile vit tiny.safetensors 1 0
run() { streamfp run --preset paper --data synthetic:20 --threads 1 --eval-limit 1 --out out "$@"; }
try() {
    run --backbone tiny.safetensors "$@" 2>&1 | grep -v "blocks, so\|^Try 'streamfp run --help'" >&2
    [ "${PIPESTATUS[0]}" = 2 ] || echo "another exit: $*" >&2
}
try --tasks 5 --drift off
try --tasks 2,8 --grow-by 5
try --drift off --pool-kind l2p
try --grow-by 5 --pool-kind dualprompt
try --pool 50 --pool-kind dualprompt --tasks 2
try --attune off --attune-topk 2
try --no-attune --attune-residual
try --taps 2
try --sigma 0.2 --select none
try --weighted --select kcenter
try --buffer none --buffer-size 10
try --buffer none --replay 5
try --replay 0 --buffer er
try --replay 0 --buffer-size 10
try --buffer er --drop-rule eq8
try --clock off --rate 10
try --clock virtual --rate 10 --queue-policy drop-newest
try --label-queue 10
for option in '--select craig' '--sigma 0.2' '--buffer er' '--buffer-size 9' '--replay 3' '--steps 2' '--lr 1' '--pool 9' '--no-attune' \
    '--drift off'; do
    read -ra words <<<"$option"
    try --method ncm "${words[@]}"
    try --preset best "${words[@]}"
done
echo "where it was set:"
try --method ncm --set sigma=0.2
printf 'sigma: 0.5\ndrift: off\ntasks: 2\n' >asks.yaml
try --config asks.yaml
mkdir live
try --data dir:live --order 2
try --data dir:live --order authors:2
try --data dir:live --within class
replica manifest list --each 1 --size 32 >/dev/null # it has its own tasks
try --data manifest:list/manifest.csv --drift off
ls
echo "these run:"
fine() {
    if ! run --img-size 32 "$@" >stdout 2>stderr; then
        echo "$*:"
        cat stderr
    fi
    rm -rf out
}
fine --method ncm --preset best --sigma .50 --attune on --buffer streamfp
fine --select random --attune off --buffer none --replay 0
fine --config asks.yaml --tasks free
fine --select camel --weighted --buffer aser
fine --select craig --weighted --buffer ssd
fine --select gradmatch --weighted --clock virtual --rate 1e6 --queue-policy block
fine --tasks 2 --drift new-class --grow-by 0 --label-queue 1000
