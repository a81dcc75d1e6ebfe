source <(streamfp help --completion bash)
try() {
    COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
    _streamfp
    echo "$* -> ${COMPREPLY[*]}"
}
touch weights.safetensors
try streamfp pre
try streamfp predict --res
try streamfp predict --resize ''
try streamfp predict --backbone we
try streamfp predict --topk ''
try streamfp inspect we
try streamfp help ver
try streamfp run --buffer e
try streamfp run --method ''
