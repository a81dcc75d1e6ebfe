# a missing file is named and skipped like an undecodable one: alone, among others, in a list; --strict stops
mkfile vit tiny.safetensors 1 3
mkfile image a.png 50 40 3
mkfile image b.png 50 40 4
mkdir empty
echo bad >bad.jpg
printf 'a.png\nnope.jpg\n' >list.csv
try() {
    streamfp predict --backbone tiny.safetensors --topk 1 "$@"
    echo "exit $?" >&2
}
try nothing.png
try a.png nope.jpg b.png nowhere/ none.csv
try a.png bad.jpg b.png
try list.csv
try --strict a.png nope.jpg b.png
try --json a.png nope.jpg 2>/dev/null | sed 's/,"seconds".*//'
try --features f.npy nope.jpg a.png >/dev/null
try empty
