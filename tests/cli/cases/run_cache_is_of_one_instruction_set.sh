# values in a cache that were computed with other instructions of oneDNN are not used
export STREAMFP_REGISTRY=$PWD/runs.db
run() { streamfp run --data synthetic:60 --tasks 2 --img-size 32 --eval-limit 5 --threads 1 "$@" >log 2>&1 || cat log; }
ONEDNN_MAX_CPU_ISA=SSE41 run --cache cache --out limited
run --cache cache --out cached
run --out plain
cmp plain/state.safetensors cached/state.safetensors && echo same
