# a small seeded run: every key of result.json, the same numbers twice, and its files
export STREAMFP_REGISTRY=$PWD/runs.db
args=(run --preset paper --img-size 32 --data synthetic:80 --tasks 2 --batch 10 --seed 4 --eval-limit 5 --threads 1)
streamfp "${args[@]}" --out a --json >a.json 2>talk || cat talk
streamfp "${args[@]}" --out b --json >b.json 2>talk || cat talk
wc -l <a.json
for key in config seed version machine accuracy_matrix average_accuracy forgetting backward_transfer prequential_accuracy per_class \
    samples offered scored trained replayed dropped lambda cs lag coverage seconds decode select train buffer evaluate total \
    samples_per_second timestamps batch_seconds peak_rss_bytes; do
    grep -q "\"$key\":" a.json || echo "no $key in --json"
    grep -q "\"$key\":" a/result.json || echo "no $key in result.json"
done
grep -o '"samples":{[^}]*}' a.json
for key in t task offered similarity coreset replay loss nu retained replaced seconds; do
    [ "$(grep -c "\"$key\":" a/events.jsonl)" = 8 ] || echo "no $key in events.jsonl"
done
cmp a/state.safetensors b/state.safetensors
ls a | grep -v old # a slow machine writes more than one checkpoint
cat talk
streamfp runs --json 2>&1 | grep -c synthetic:80
