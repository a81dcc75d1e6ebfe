# under overload the input is smaller; --costs decides it repeatably, and a run that resumes or has an initial state keeps its size
export STREAMFP_REGISTRY=$PWD/runs.db
mkfile vit tiny.safetensors 1 0
streamfp inspect --brief tiny.safetensors | grep ^architecture
learner=(--attune off --prompt-layers 0-1)
run() { # OUT OPTIONS...
    local out=$1
    shift
    streamfp run --backbone tiny.safetensors "${learner[@]}" --data synthetic:60 --tasks 2 --batch 10 --eval-limit 2 --threads 1 --out "$out" "$@" 2>&1 >/dev/null
    grep -m 1 '"img-size"' "$out/result.json"
}
printf 'query 0.004\ntrain 0.01\n' >slow
printf 'query 0.001\ntrain 0.01\n' >fast
run full --rate 1000 --costs fast
run auto --rate 1000 --costs slow
run again --rate 1000 --costs slow
cmp auto/state.safetensors again/state.safetensors
echo "explicit, and other presets:"
run given --rate 1000 --costs slow --img-size 24
run zero --rate 1000 --costs slow --img-size 0
run default --rate 1000 --costs slow --preset default --triage
run named --rate 1000 --costs slow --preset default --triage --img-size auto
run unrated
learner=(--method ncm)
run ncm --rate 1000 --costs slow
echo "a resumed run:"
cp fast slow
run ncm --rate 1000 --costs slow --resume
learner=(--attune off --prompt-layers 0-1)
run auto --rate 1000 --costs slow --resume
echo "an initial state:"
run first --tasks 1 --img-size 24
run second --init-state first --tasks 1
echo "not a size:"
streamfp run --img-size small --out bad
