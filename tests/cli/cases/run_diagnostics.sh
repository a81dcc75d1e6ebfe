# --diagnostics: the numbers in result.json; the same state and events; where it is refused
export STREAMFP_REGISTRY=$PWD/runs.db
args=(run --preset paper --img-size 32 --data synthetic:80 --tasks 2 --batch 10 --buffer-size 12 --eval-limit 5 --threads 1)
for name in off on; do
    streamfp "${args[@]}" --diagnostics $name --out $name >log 2>&1 || cat log
    sed 's/,"seconds":{.*$//' $name/events.jsonl >$name.events
done
cmp off/state.safetensors on/state.safetensors && cmp off.events on.events && echo 'the same state and events'
for name in off on; do echo "$name: $(grep -c '^ "diagnostics": {' $name/result.json)"; done
sed -n '/^ "diagnostics": {/,/}/p' on/result.json | sed -E 's/[0-9.]+(e-[0-9]+)?,?$/N/; s/-?[0-9.]+(e-[0-9]+)?/N/g'
streamfp run --data synthetic:80 --diagnostics on --method ncm --out other 2>&1
streamfp "${args[@]}" --diagnostics off --resume --out on 2>&1
