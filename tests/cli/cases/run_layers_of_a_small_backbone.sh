# a backbone of two blocks: defaults that need more are reduced with a message; explicit ones are refused
export STREAMFP_REGISTRY=$PWD/runs.db
mkfile vit tiny.safetensors 1 0
run() { streamfp run --preset paper --backbone tiny.safetensors --data synthetic:20 --threads 1 --eval-limit 1 --out out "$@" 2>&1 >/dev/null; echo "exit $?"; }
run --attune off
streamfp inspect out/state.safetensors | grep -o 'prompt\.e_p_.'
run --attune off --prompt-layers 0-4
run --attune off --prompt-layers 1-2
run --attune off --prompt-layers 1-1
run --method ncm
run
run --attune on
