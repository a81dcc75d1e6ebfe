# eval of a saved state gives the numbers of result.json; for the state of an earlier task, those of its row
export STREAMFP_REGISTRY=$PWD/runs.db
mkfile vit tiny.safetensors 1 0
data=(--backbone tiny.safetensors --data synthetic:80 --tasks 3,3,4 --eval-limit 9 --threads 1)
for how in '--attune off' '--method slda'; do
    out=${how##* }
    read -ra words <<<"$how"
    streamfp run --preset paper "${data[@]}" "${words[@]}" --batch 10 --seed 4 --out "$out" --json >run.json 2>talk || cat talk
    streamfp eval --state "$out" "${data[@]}" --json >eval.json 2>talk || cat talk
    wc -l <eval.json
    [ "$(grep -oE '"average_accuracy":[^,]*' run.json | head -n 1)" = "$(grep -oE '"average_accuracy":[^,]*' eval.json)" ] || echo average differs
    row=$(grep -oE '"accuracy_matrix":\[.*\]\],"av' run.json | grep -oE '\[[^][]*\]\],"av' | grep -oE '[0-9.e-]+' | tr '\n' ' ')
    tasks=$(grep -oE '"tasks":\[[^]]*\]' eval.json | grep -oE '"accuracy":[^,]*' | cut -d: -f2 | tr '\n' ' ')
    [ "$row" = "$tasks" ] || echo "row '$row', eval '$tasks'"
    wc -w <<<"$row"
done
# without the numbers, which depend on the machine
streamfp eval --state slda/state-task-2.safetensors "${data[@]}" 2>talk |
    sed -nE '/^most confused/q; s/[0-9]+\.[0-9]+/N/g; s/ [0-9]+ of / N of /; p'
cat talk
