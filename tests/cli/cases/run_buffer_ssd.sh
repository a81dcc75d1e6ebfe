# synthetic images in the buffer: a small run with an optimisation (the window is full after 32 batches), the same bytes with other
# threads, and their tensors in the checkpoint
export STREAMFP_REGISTRY=$PWD/runs.db
args=(--img-size 32 --data synthetic:140 --tasks 1 --batch 4 --buffer ssd --buffer-size 22 --replay 4 --seed 4 --eval-limit 2 --prompt-layers 0-1)
streamfp run --preset paper "${args[@]}" --threads 1 --out a --json >a.json 2>talk || cat talk
streamfp run --preset paper "${args[@]}" --threads 2 --out b --json >b.json 2>talk || cat talk
cmp a/state.safetensors b/state.safetensors
cmp <(grep -o '"moved":[^,]*' a/events.jsonl) <(grep -o '"moved":[^,]*' b/events.jsonl)
for out in a b; do echo "$out: $(grep '"moved":' $out/events.jsonl | grep -o '"t":[0-9]*' | tr '\n' ' ')"; done
echo "$(wc -l <a/events.jsonl) timestamps, $(grep -o '"samples":{[^}]*}' a.json)"
streamfp inspect a/checkpoint | grep -o 'buffer\.ssd\.[^ ]* *[A-Z0-9]*' | sed 's/  */ /g'
