small='--img-size 16 --patch 8 --dim 32 --depth 1 --heads 2 --batch 8 --epochs 1'
try() {
    streamfp pretrain "$@"
    echo "exit $?" >&2
}
try
try --data synthetic:40
try --out o
try --data synthetic:40 --out o --img-size 20 --patch 8
try --data synthetic:40 --out o --dim 32 --heads 5
try --data synthetic:40 --out o --lr 0
try --data synthetic:40 --out o --bach 8
# shellcheck disable=SC2086  # several words
{
    try --data synthetic:4 --out o $small
    try --data folder:nowhere --out o $small
    try --data synthetic:40 --test synthetic:abc --out o $small
    try --data synthetic:40 --teacher nowhere.safetensors --out o $small
    try --data synthetic:40 --out /dev/null/o $small
    try --data synthetic:40 --weight-label 0 --out o $small
    mkfile vit other.safetensors 1 3
    try --data synthetic:40 --init other.safetensors --out o $small
    try --data synthetic:40 --teacher other.safetensors --teacher-grid 3 --out o $small
    echo no cache >cache
    mkfile vit tiny.safetensors 1 3
    try --data synthetic:40 --teacher tiny.safetensors --teacher-cache cache --out o $small
    cat cache >&2
    streamfp pretrain --data synthetic:40 --out o $small >nothing
    try --data synthetic:40 --out o $small --seed 2 --resume
    # the same images with other labels are other data
    for i in $(seq 16); do mkfile image "$i.png" 16 16 "$i" && echo "$i.png,$((i % 2))"; done >list.csv
    streamfp pretrain --data manifest:list.csv --out l $small >nothing
    sed -i 's/^3.png,1/3.png,0/' list.csv
    try --data manifest:list.csv --out l $small --resume
    head -c 2000 o/checkpoint.safetensors >cut && mv cut o/checkpoint.safetensors
    try --data synthetic:40 --out o $small --resume
}
