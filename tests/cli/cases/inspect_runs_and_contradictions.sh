# a run directory stands for its state; options without effect are refused
export STREAMFP_REGISTRY=$PWD/runs.db
mkfile vit tiny.safetensors 1 0
mkfile image a.png 20 20 1
streamfp run --backbone tiny.safetensors --method ncm --data synthetic:40 --threads 1 --out run >/dev/null
streamfp inspect run --brief | sed -n 1,3p
streamfp predict --backbone tiny.safetensors --features f.npy a.png
mkdir empty
try() {
    streamfp inspect "$@" >/dev/null
    echo "exit $?" >&2
}
try empty
try tiny.safetensors --stats --brief
try tiny.safetensors --img-size 64
try run --img-size 64
try run/checkpoint --img-size 64
try f.npy --img-size 64
