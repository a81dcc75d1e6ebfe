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
try --preset paper --data synthetic:60 --prompt-length 7
try --preset paper --data synthetic:60 --grow-by 101
try --preset paper --data synthetic:60 --pool 4 --tasks 5
try --preset paper --data synthetic:60 --buffer-bytes 10
try --preset paper --data synthetic:60 --pool-kind l2p --prompt-layers 1-3
try --data synthetic:60 --method knn
for word in default fast authors; do try --data synthetic:60 --preset $word; done
try --data synthetic:60 --head mix
try --data synthetic:60 --set head-feed=batch
try --data synthetic:60 --mix-by=arrivals
try --data synthetic:60 --allocate queries
printf 'data: synthetic:60\nhead: linear\n' >removed.yaml
try --config removed.yaml
printf 'data: synthetic:60\npreset: fast\n' >fast.yaml
try --config fast.yaml
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
printf 'data: synthetic:60\npreset: paper\nprompt_length: 7\n' >odd.yaml
try --config odd.yaml
try --data synthetic:60 --out tiny.safetensors/below
ls
