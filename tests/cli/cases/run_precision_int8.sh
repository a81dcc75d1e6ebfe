# Precision int8: a state keeps it, predictions use it, states of different precision do not add up, and fingerprints refuse it
export STREAMFP_REGISTRY=$PWD/runs.db
mkfile vit tiny.safetensors 1 0
mkdir -p a/cat a/dog
for i in 1 2 3 4 5 6; do
    mkfile image "a/cat/$i.png" 40 30 "$i"
    mkfile image "a/dog/$i.png" 30 40 "$((i + 50))"
done
run() { streamfp run --backbone tiny.safetensors --data folder:a --tasks 1 --json "$@" 2>&1 >/dev/null | grep -v 'no test set'; }
run --out plain.run
run --out bytes.run --precision int8 --threads 1
run --out again.run --precision int8 --threads 2
cmp bytes.run/state.safetensors again.run/state.safetensors && echo same for 1 and 2 threads
predict() { streamfp predict --backbone tiny.safetensors --state bytes.run a/cat/1.png "$@" 2>notes >"answer$#"; cat notes; }
predict
predict --precision int8
cmp answer0 answer2 && echo the same
echo refused
streamfp merge plain.run bytes.run -o no.safetensors; echo "exit $?"
run --out no.run --init-state plain.run --precision int8
run --out no.run --preset paper --prompt-layers 0-1 --pool 8 --precision int8
streamfp predict --backbone tiny.safetensors --precision int9 a/cat/1.png; echo "exit $?"
