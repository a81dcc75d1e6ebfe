# the parent directories of --out are created, and removed again if the run fails early
export STREAMFP_REGISTRY=$PWD/runs.db
mkfile vit tiny.safetensors 1 0
learner=(run --backbone tiny.safetensors --method ncm --threads 1)
trainer=(pretrain --img-size 16 --patch 8 --dim 32 --depth 1 --heads 2 --batch 8 --epochs 1 --threads 1)
try() {
    streamfp "$@" 2>&1 >/dev/null
    echo "exit $?"
}
try "${learner[@]}" --data synthetic:40 --out a/b/c
try "${trainer[@]}" --data synthetic:40 --out a/d/e
ls a/b/c/result.json a/d/e/model.safetensors
mkdir there
try "${learner[@]}" --data folder:nowhere --out there/f/g
try "${trainer[@]}" --data folder:nowhere --out there/f/g
try "${trainer[@]}" --data folder:nowhere --out there
try "${learner[@]}" --data folder:nowhere
: >file
try "${learner[@]}" --data synthetic:40 --out file/b/c
try "${trainer[@]}" --data synthetic:40 --out file/b/c
ls
ls there
