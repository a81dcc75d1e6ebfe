# buffer methods that use features, queries and gradients of the learner: small runs, their reports on the buffer,
# and resuming with another method, which is refused
export STREAMFP_REGISTRY=$PWD/runs.db
args=(--img-size 32 --data synthetic:40 --tasks 2 --batch 10 --buffer-size 8 --replay 4 --seed 4 --eval-limit 2 --threads 1 --prompt-layers 0-1)
for method in aser camel gss; do
    streamfp run --preset paper "${args[@]}" --buffer $method --out $method --json >$method.json 2>talk || cat talk
    echo "$method: $(grep -c '"stored":8,"nu"' $method/events.jsonl) fills the buffer, $(wc -l <$method/events.jsonl) timestamps," \
        "$(grep -o '"samples":{[^}]*}' $method.json)"
done
streamfp run --preset paper "${args[@]}" --buffer er --out gss --resume 2>&1 | grep -o 'buffer.*' | head -1
