# renamed options and values: earlier names are accepted on the command line, by --set and in YAML; result.json keeps them
export STREAMFP_REGISTRY=$PWD/runs.db
mkfile vit tiny.safetensors 1 0
small=(--backbone tiny.safetensors --data synthetic:20 --tasks free --attune off --batch 10 --threads 1 --eval-limit 1)
run() { streamfp run --preset paper "${small[@]}" "$@"; }
value() { sed -n "/\"config\"/,/}/s/^  \"$1\": \"\(.*\)\".*/$1 \1/p" "$2/result.json"; }
printf 'keep: compressed\nspan: 5\n' >earlier.yaml
run --config earlier.yaml --set coreset=paper --query one --normalise checkpoint --out earlier >/dev/null 2>&1 || echo "exit $?"
now=(--buffer-format compressed --grow-by 5 --coreset-rounding paper --query-pass shared --normalise backbone)
run "${now[@]}" --out now >/dev/null 2>&1 || echo "exit $?"
for key in pending keep span coreset query normalise; do value $key earlier; done
cmp earlier/state.safetensors now/state.safetensors
diff <(value '[a-z-]*' earlier) <(value '[a-z-]*' now) && echo same
streamfp runs show now | grep -E '^  (label-queue|buffer-format|grow-by|coreset-rounding|query-pass|normalise) '
grep -o 'query-pass shared' now/report.html | head -n 1
printf 'keep: compressed\nbuffer-format: pixels\n' >twice.yaml
run --config twice.yaml --out out 2>&1 | head -n 1
run --query three --out out 2>&1 | head -n 1
run --resume --query two --out now 2>&1 | tail -n 1
