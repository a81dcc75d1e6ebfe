# another backbone, a file that is not a state, a truncated state, a flipped byte or a NaN, data without known classes, wrong words
export STREAMFP_REGISTRY=$PWD/runs.db
mkfile vit one.safetensors 1 0
mkfile vit two.safetensors 2 0
mkdir -p p/cat p/dog q/emu
for i in 1 2 3; do
    mkfile image "p/cat/$i.png" 40 30 "$i"
    mkfile image "p/dog/$i.png" 30 40 "$((i + 9))"
done
mkfile image q/emu/1.png 30 30 5
streamfp run --backbone one.safetensors --preset paper --batch 3 --data folder:p --attune off --out run --json >/dev/null 2>&1 || echo no run
try() {
    streamfp eval "$@"
    echo "exit $?" >&2
}
try --state run --backbone two.safetensors --data folder:p
try --state run --backbone one.safetensors --data folder:q
try --state run --backbone one.safetensors --data folder:p --tasks 3
try --state one.safetensors --backbone one.safetensors --data folder:p
try --state p --backbone one.safetensors --data folder:p
try --state nowhere --backbone one.safetensors --data folder:p
head -c 100000 run/state.safetensors >cut.safetensors
try --state cut.safetensors --backbone one.safetensors --data folder:p
mkfile flip run/state.safetensors flipped.safetensors -100000
try --state flipped.safetensors --backbone one.safetensors --data folder:p 2>messages
sed -E 's/(is|expected) [0-9a-f]{8}/\1 SUM/g' messages >&2
for tensor in prompt.e_k_1 last.weight; do
    mkfile nan run/state.safetensors nan.safetensors $tensor
    try --state nan.safetensors --backbone one.safetensors --data folder:p
done
try --state run --backbone one.safetensors --data folder:p --part train
try --state run --backbone one.safetensors --data folder:p --seed 4
try --state run --backbone one.safetensors --data folder:nowhere --part train --seed 4
try --state run --backbone one.safetensors --data synthetic:50 --part train --seed 4
try --state run
try --data folder:p
echo half >p/cat/9.png
mkfile image p/emu.png 9 9 9
mkdir p/emu && mv p/emu.png p/emu/1.png
streamfp eval --state run --backbone one.safetensors --data folder:p --json | grep -oE '"(pictures|skipped|unknown_classes)":(\[[^]]*\]|[0-9]+),"r?[a-z]+' | head -3
