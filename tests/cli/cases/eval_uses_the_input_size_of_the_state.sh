# a state of another input size: eval and predict resize the backbone and report it, unless --img-size is given
export STREAMFP_REGISTRY=$PWD/runs.db
mkfile vit tiny.safetensors 1 0
mkfile vit other.safetensors 2 0
mkdir -p p/cat p/dog
for i in 1 2 3; do
    mkfile image "p/cat/$i.png" 40 30 "$i"
    mkfile image "p/dog/$i.png" 30 40 "$((i + 9))"
done
streamfp run --preset paper --batch 3 --backbone tiny.safetensors --img-size 48 --data folder:p --attune off --out run --json >nothing 2>&1 || cat nothing
try() {
    streamfp "$@" >out
    echo "exit $?" >&2
}
try eval --state run --backbone tiny.safetensors --data folder:p
try eval --state run --backbone tiny.safetensors --data folder:p --img-size 48
cp out first
try predict --state run --backbone tiny.safetensors p
cut -f1 out
try eval --state run --backbone tiny.safetensors --data folder:p --img-size 40
try eval --state run --backbone tiny.safetensors --data folder:p --img-size 30
try predict --state run --backbone tiny.safetensors --img-size 30 p
try eval --state run --backbone other.safetensors --data folder:p
# an unreadable image is named
echo half >p/dog/9.png
try eval --state run --backbone tiny.safetensors --img-size 48 --data folder:p
rm p/*/?.png
for c in cat dog; do echo half >p/$c/1.png; done
try eval --state run --backbone tiny.safetensors --img-size 48 --data folder:p
