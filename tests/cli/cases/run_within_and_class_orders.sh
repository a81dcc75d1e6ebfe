# --within and --order authors:K decide which sample comes when; both are recorded, and a run that resumes must repeat them
export STREAMFP_REGISTRY=$PWD/runs.db
mkfile vit tiny.safetensors 1 0
for class in a b c d; do
    mkdir -p data/$class
    for i in 1 2 3; do mkfile image data/$class/$i.png 8 8 $i; done
done
run() { streamfp run --backbone tiny.safetensors --data folder:data --threads 1 --batch 3 --method ncm --out out "$@" 2>stderr >/dev/null || cat stderr; }
ids() { sed -E 's/.*"offered": ?\[([^]]*)\].*/\1/; s/ //g' out/events.jsonl | tr '\n' ' '; }
for within in given class; do
    run --tasks 2 --within $within
    echo "2 tasks, $within: $(ids)"
done
run --tasks 2 --order authors:3 --within given
echo "classes: $(grep -o '"class_names": *\[[^]]*\]' out/result.json)"
echo "order authors:3, given: $(ids)"
grep -oE '"(order|within)": *"[^"]*"' out/result.json
echo "names of the tasks: $(streamfp runs show out | grep -E '^  [12] ' | tr -s '\n ' '; ')"
run --tasks free --order authors:3 --within class
echo "classes of a task-free stream, class by class: $(ids | tr ',' '\n' | tr ' ' '\n' | sed '/^$/d' | while read -r i; do
    echo -n $((i / 3))
done)"
streamfp run --backbone tiny.safetensors --data folder:data --threads 1 --batch 3 --method ncm --tasks free --order authors:2 --within class \
    --out out --resume 2>&1 | grep -v blocks
