# each command ends at once with a message, and creates no directory
export STREAMFP_REGISTRY=$PWD/runs.db
try() {
    streamfp run --threads 1 "$@" 2>&1 | grep -v 'stands in' >&2
    echo "exit ${PIPESTATUS[0]}" >&2
}
try --data camera:0
try --data folder:nowhere --out out
try --data synthetic:60 --sigma 0
try --data synthetic:60 --tasks 11 --out out
try --data synthetic:60 --tasks 3,3 --out out
try --data synthetic:60 --tasks 0 --out out
try --data synthetic:60 --tasks domain
try --data synthetic:60 --tasks time
try --data synthetic:sixty
try --data synthetic:60 --test camera:0
try --data synthetic:60 --test synthetic:0
mkfile vit tiny.safetensors 1 0
try --data synthetic:60 --backbone tiny.safetensors --img-size 30
try --data synthetic:60 --prompt-length 7
try --data synthetic:60 --grow-by 101
try --data synthetic:60 --pool 4 --tasks 5
try --data synthetic:60 --buffer-bytes 10
try --data synthetic:60 --head mix --query-pass shared
try --data synthetic:60 --pool-kind l2p --prompt-layers 1-3
try --data synthetic:60 --method knn
try --data synthetic:60 --rate fast
try --data synthetic:60 --rate 1e-308 --clock virtual
try --data synthetic:60 --clock virtual --out out
try --data synthetic:60 --clock real --out out
try --data synthetic:0 --clock real
try --data synthetic:60 --eval-every never
try --data synthetic:60 --order -1
try --data synthetic:60 --order authors:0
try --data synthetic:60 --order author:2
try --data synthetic:60 --within random
try --data synthetic:60 --resume
try --data synthetic:60 --set batch
try --data synthetic:60 --set bacth=3
try --data synthetic:60 --costs nowhere --rate 10 --out out
printf 'data: synthetic:60\nbatch: [\nsigma: 0.5\n' >broken.yaml
try --config broken.yaml
printf 'data: synthetic:60\n\nbacth: 10\n' >unknown.yaml
try --config unknown.yaml
try --config nowhere.yaml
printf 'data: synthetic:60\nprompt_length: 7\n' >odd.yaml
try --config odd.yaml
try --data synthetic:60 --out tiny.safetensors/below
ls
