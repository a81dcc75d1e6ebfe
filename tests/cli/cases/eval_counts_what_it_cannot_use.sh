# a file that is not an image, and a class that the state has not learned
export STREAMFP_REGISTRY=$PWD/runs.db
mkfile vit one.safetensors 1 0
mkdir -p p/cat p/dog
for i in 1 2 3; do
    mkfile image "p/cat/$i.png" 40 30 "$i"
    mkfile image "p/dog/$i.png" 30 40 "$((i + 9))"
done
streamfp run --backbone one.safetensors --data folder:p --out run --json >/dev/null 2>&1 || echo no run
echo half >p/cat/9.png
mkdir p/emu
mkfile image p/emu/1.png 9 9 9
streamfp eval --state run --backbone one.safetensors --data folder:p --json | grep -oE '"(pictures|skipped|unknown_classes)":(\[[^]]*\]|[0-9]+),"r?[a-z]+' | head -3
