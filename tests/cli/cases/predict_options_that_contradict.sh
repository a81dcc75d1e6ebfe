# an output file needs the extension of its format, so that a photograph is not overwritten
mkfile vit tiny.safetensors 1 3
mkfile image a.png 50 40 3
mkfile image b.png 50 40 4
cp a.png before
try() {
    streamfp predict --backbone tiny.safetensors "$@"
    echo "exit $?" >&2
}
try --features a.png b.png
cmp a.png before
try --features features b.png
try --features .npy/features b.png
echo a.png,1 >list.csv
try --eval list.csv --topk 2
try --taps 2 b.png
try --tap-mean on b.png
try --features f.npy --taps 65 b.png
try --features f.npy --taps 13 b.png
ls -A
