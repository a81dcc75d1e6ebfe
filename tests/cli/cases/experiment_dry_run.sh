# A dry run of every experiment works before any processing time is measured, and writes nothing; its times are guesses. After the
# experiment they are known, and finished runs are named.
export STREAMFP_REGISTRY=$PWD/runs.db
streamfp pretrain --data synthetic:16 --img-size 16 --patch 8 --dim 16 --depth 3 --heads 1 --batch 16 --epochs 1 --score-every 0 \
    --threads 1 --out pre >log 2>&1 || cat log
experiment() {
    streamfp experiment "$@" --backbone pre/model.safetensors --data synthetic:60 --tasks 3 --batch 2 --pool 10 --orders 1 \
        --eval-limit 4 --calibrate 1 --threads 1 --out out
}
without_times() { sed -E 's/ +[0-9]+\.[0-9] s\b/ TIME/'; }
echo "--- all"
experiment all --dry-run >list 2>log || cat log
grep -c 'repetition' list
grep -E 'repetition' list | grep -cE ' [0-9.]+ s  guess$'
tail -1 list | sed -E 's/^[0-9]+/N/'
ls
echo "--- E9"
experiment E9 --dry-run 2>/dev/null | without_times
echo "--- measured"
experiment E9 >/dev/null 2>log || cat log
experiment E9 --seeds 2 --dry-run | without_times
