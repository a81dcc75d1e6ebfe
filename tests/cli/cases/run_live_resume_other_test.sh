# a live run can be resumed with another test set or without one: its training images are the stream's
export STREAMFP_REGISTRY=$PWD/runs.db
mkdir -p in/cat in/dog one/cat two/dog
mkfile vit tiny.safetensors 1 0
for i in 1 2 3; do
    for d in in/cat in/dog one/cat two/dog; do mkfile image "$d/$i.png" 32 32 "$((i + 5 * ${#d}))"; done
done
touch in/.end
run() {
    streamfp run --preset paper --backbone tiny.safetensors --attune off --pool 8 --prompt-length 4 --prompt-layers 0-1 --data dir:in --batch 3 --threads 1 \
        --out out "$@" 2>stderr >stdout
    echo "exit $?"
    grep -v '^task\|samples/s' stderr
}
run --test folder:one
mkfile image in/cat/4.png 32 32 77
run --test folder:two --resume
mkfile image one/cat/4.png 32 32 78
run --test folder:one --resume
run --resume
