# what is to be written is named as what it is: a photograph in its place stays
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
ls -A
