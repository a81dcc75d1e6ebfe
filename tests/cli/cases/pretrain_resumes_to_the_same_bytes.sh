# A training that is killed repeatedly, between steps or at any other time, gives the same result.
mkfile vit teacher.safetensors 1 5
options='--data synthetic:160 --teacher teacher.safetensors --views 2 --img-size 16 --patch 8 --dim 32 --depth 2 --heads 2 --batch 16 --epochs 30 --mixup 0.3
    --checkpoint-every 0.02 --score-every 0 --threads 2'
# shellcheck disable=SC2086  # several words
{
    streamfp pretrain $options --out whole --json 2>err | grep -oE '"finished":true,"steps":[0-9]+'
    kills=0
    for wait in 0.05 0.1 0.15 0.2 0.25 0.3 0.35 0.4; do
        streamfp pretrain $options --out cut --resume >out 2>err &
        sleep "$wait"
        {
            if kill -9 $!; then kills=$((kills + 1)); fi
            wait $!
        } 2>nothing
    done
    [ "$kills" -gt 0 ] && echo killed
    streamfp pretrain $options --out cut --resume --json 2>err | grep -oE '"finished":true,"steps":[0-9]+'
    cmp whole/model.safetensors cut/model.safetensors && echo same model
    cmp whole/teacher.cache cut/teacher.cache && echo same teacher outputs
    # resuming a finished training changes nothing
    before=$(sha256sum cut/model.safetensors)
    streamfp pretrain $options --out cut --resume --json 2>err | grep -oE '"finished":true,"steps":[0-9]+'
    [ "$before" = "$(sha256sum cut/model.safetensors)" ] && echo unchanged
    # a requested stop writes a checkpoint, too
    streamfp pretrain $options --epochs 100000 --out asked >out 2>err &
    wait_until [ -e asked/checkpoint.safetensors ]
    kill -TERM $!
    wait $!
    echo "exit $?"
    grep -o 'stopped; continue with the same command and --resume' err
}
