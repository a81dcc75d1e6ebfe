export STREAMFP_REGISTRY=$PWD/runs.db
mkfile vit one.safetensors 1 0
mkfile vit two.safetensors 2 0
mkdir -p p/cat p/dog
for i in 1 2 3; do
    mkfile image "p/cat/$i.png" 40 30 "$i"
    mkfile image "p/dog/$i.png" 30 40 "$((i + 9))"
done
streamfp run --backbone one.safetensors --data folder:p --method slda --out run --json >/dev/null 2>&1 || echo no run
try() {
    streamfp predict --backbone "$@"
    echo "exit $?" >&2
}
try one.safetensors p/cat/1.png
try two.safetensors --state run p/cat/1.png
try one.safetensors --state p p/cat/1.png
mkfile nan run/state.safetensors nan.safetensors head.slda.bias
try one.safetensors --state nan.safetensors p/cat/1.png
mkfile flip run/state.safetensors flipped.safetensors -900
try one.safetensors --state flipped.safetensors p/cat/1.png 2>messages
sed -E 's/(is|expected) [0-9a-f]{8}/\1 SUM/g' messages >&2
head -c 2000 run/state.safetensors >cut.safetensors
try one.safetensors --state cut.safetensors p/cat/1.png
echo p/cat/1.png,emu >labels.csv
try one.safetensors --state run --eval labels.csv
printf 'a\nb\nc\n' >names.txt
try one.safetensors --state run --names names.txt p/cat/1.png
try one.safetensors --state run --features f.npy p/cat/1.png
try one.safetensors --state run --resize crop p/cat/1.png
