try() {
    streamfp data "$@"
    echo "exit $?" >&2
}
try descirbe folder:x
try nothing
try describe
try describe nowhere
mkdir -p images/cat digits of/cat
mkfile image of/cat/1.png 20 20 1
: >digits/train-images-idx3-ubyte.gz
: >list.csv
: >what.bin
try describe images
try describe digits # the kind follows from a file in the directory
try describe list.csv
try describe what.bin
try describe folder:nowhere
try describe watch:nowhere
try describe watch:what.bin
try describe synthetic:0
try describe synthetic:abc
try describe synthetic:20 --tasks 3,3
try describe folder:of --tasks 0
try describe manifest:list.csv # damaged data is not a usage error
try describe folder:images
try describe synthetic:20 --out x
try describe folder:of --part test
try describe synthetic:20 --sheet nowhere/x.png
try fetch
try fetch cifra10
try fetch imagenet
try fetch fashion-mnist --out x
try list more
