# under overload the input is smaller; --costs decides it repeatably, and a run that resumes or has an initial state keeps its size
export STREAMFP_REGISTRY=$PWD/runs.db
mkfile vit tiny.safetensors 1 0
streamfp inspect --brief tiny.safetensors | grep ^architecture
learner=()
run() { # OUT OPTIONS...
    local out=$1
    shift
    streamfp run --backbone tiny.safetensors "${learner[@]}" --data synthetic:60 --tasks 2 --batch 10 --eval-limit 2 --threads 1 --out "$out" "$@" 2>&1 >/dev/null
    grep -m 1 '"img-size"' "$out/result.json"
}
echo 'query 0.008' >slow
echo 'query 0.001' >fast
run full --rate 1000 --costs fast
run auto --rate 1000 --costs slow
run again --rate 1000 --costs slow
cmp auto/state.safetensors again/state.safetensors
echo "explicit, and preset paper:"
run given --rate 1000 --costs slow --img-size 24
run zero --rate 1000 --costs slow --img-size 0
run paper --rate 1000 --costs slow --preset paper --clock virtual --attune off --prompt-layers 0-1
run named --rate 1000 --costs slow --preset paper --clock virtual --attune off --prompt-layers 0-1 --img-size auto
run unrated
learner=(--method ncm)
run ncm --rate 1000 --costs slow
echo "a resumed run:"
cp fast slow
run ncm --rate 1000 --costs slow --resume
learner=()
run auto --rate 1000 --costs slow --resume
learner=(--preset paper --attune off --prompt-layers 0-1)
echo "an initial state:"
run first --tasks 1 --img-size 24
run second --init-state first --tasks 1 --img-size auto
echo "not a size:"
streamfp run --img-size small --out bad
