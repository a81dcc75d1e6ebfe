# more images than those whose bytes are part of the inputs: if one of the others is replaced, the cell is computed again
export STREAMFP_REGISTRY=$PWD/runs.db
streamfp pretrain --data synthetic:16 --img-size 16 --patch 8 --dim 16 --depth 3 --heads 1 --batch 16 --epochs 1 --score-every 0 \
    --threads 1 --out pre >log 2>&1 || cat log
for i in 0 1 2 3; do mkfile image "$i.png" 16 16 "$i"; done
# 0.png and 2.png are at even places, 1.png and 3.png at odd ones
for ((i = 0; i < 10001; i++)); do echo "$((i % 4)).png,c$((i / 2 % 2))"; done >many.csv
printf '%s\n' 0.png,c0 2.png,c1 >few.csv
sweep() {
    streamfp sweep --grid method=ncm --seeds 1 --data manifest:many.csv --test manifest:few.csv --tasks free --batch 500 --threads 1 \
        --backbone pre/model.safetensors --out out 2>&1 >/dev/null | grep -o 'computed again'
}
sweep || echo first
sweep || echo the same
mkfile image new.png 16 16 9
mv new.png 3.png
sweep
sweep || echo the same
