# predict and eval use the backbone of the run, from any directory; it is an error if its file is gone or another one
export STREAMFP_REGISTRY=$PWD/runs.db
mkdir -p weights p/cat p/dog
mkfile vit weights/one.safetensors 1 0
for i in 1 2 3; do
    mkfile image "p/cat/$i.png" 40 30 "$i"
    mkfile image "p/dog/$i.png" 30 40 "$((i + 9))"
done
streamfp run --backbone weights/one.safetensors --data folder:p --out runs/a >/dev/null 2>&1 || echo no run
predict() { streamfp predict --topk 1 "$@" 2>&1 | sed -E 's/\t(cat|dog)\t[0-9.]+ %/ CLASS/; s/fewer than 20.*/.../'; }
predict --state runs/a p/cat/1.png
predict --state runs/a/state.safetensors p/cat/1.png
(cd p && predict --state ../runs/a cat/1.png | sed "s|$(dirname "$PWD")|TOP|")
streamfp eval --state runs/a --data folder:p 2>&1 | grep -E 'backbone|  accuracy' | sed -E 's/accuracy.*(of 6 images).*/accuracy \1/'
cp runs/a/state.safetensors alone.safetensors
predict --state alone.safetensors p/cat/1.png
predict --state alone.safetensors --backbone weights/one.safetensors p/cat/1.png
mkfile vit weights/one.safetensors 2 0
predict --state runs/a p/cat/1.png
rm weights/one.safetensors
predict --state runs/a p/cat/1.png
streamfp eval --state runs/a --data folder:p
echo "exit $?"
# the built-in one
streamfp run --data folder:p --out runs/b >/dev/null 2>&1 || echo no run
predict --state runs/b p/cat/1.png
