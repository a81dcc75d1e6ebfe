# A sweep that cannot measure the accuracy says so once, before its first run.
export STREAMFP_REGISTRY=$PWD/runs.db
mkfile vit tiny.safetensors 1 10
for class in mug bowl; do
    mkdir -p photos/$class
    for i in 1 2 3; do mkfile image photos/$class/$i.png 40 30 $i; done
done
sweep() {
    streamfp sweep --grid method=ncm,slda --seeds 1 --data folder:photos --backbone tiny.safetensors --threads 1 --out out "$@" \
        2>&1 >/dev/null | sed -E 's/\(.*ETA.*//'
}
sweep
echo "--- with a test set"
sweep --test folder:photos --out other | sed 's/accuracy .*//'
