need_shared
streamfp predict --backbone "$SHARED/data/deit_tiny_patch16_224.safetensors" --eval "$SHARED/data/imagenet-val-200/labels.csv" \
    --resize crop --json | grep -oE '"(top1_count|top5_count|count)":[0-9]+'
