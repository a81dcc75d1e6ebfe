# the message for a file of the wrong kind names the kind
export STREAMFP_REGISTRY=$PWD/runs.db
mkfile vit tiny.safetensors 1 0
mkdir folder
learner=(run --backbone tiny.safetensors --threads 1 --batch 10)
fingerprints=(--preset paper --attune off --prompt-layers 0-1)
try() {
    streamfp "$@" </dev/null 2>&1 >/dev/null
    echo "exit $?"
}
try "${learner[@]}" --method ncm --data stdin --out o
try "${learner[@]}" --method ncm --config folder
try "${learner[@]}" "${fingerprints[@]}" --data synthetic:20 --out good
for file in tiny.safetensors good/result.json; do
    try "${learner[@]}" "${fingerprints[@]}" --data synthetic:20 --out o --init-state $file
done
ls
