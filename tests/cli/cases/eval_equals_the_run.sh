# eval of a saved state gives the numbers of result.json; for the state of an earlier task, those of its row
export STREAMFP_REGISTRY=$PWD/runs.db
mkfile vit tiny.safetensors 1 0
data=(--backbone tiny.safetensors --data synthetic:80 --tasks 3,3,4 --eval-limit 9 --threads 1)
for how in '--attune off' '--prefix raw --resize crop' '--order 7' '--batch 7 --method ncm' '--method slda' '--method ridge' '--method ranpac'; do
    out=${how##* }
    read -ra words <<<"$how"
    streamfp run --preset paper "${data[@]}" --batch 10 "${words[@]}" --seed 4 --out "$out" --json >run.json 2>talk || cat talk
    for task in 1 2 3; do
        streamfp eval --state "$out/state-task-$task.safetensors" "${data[@]}" --json >eval.json 2>talk || cat talk
        row=$(grep -oE '"accuracy_matrix":\[.*\]\],"av' run.json | grep -oE '\[[^][]*\]' | sed -n "${task}p" | grep -oE '[0-9.e-]+|null' | tr '\n' ' ')
        tasks=$(grep -oE '"tasks":\[[^]]*\]' eval.json | grep -oE '"accuracy":[^,]*' | cut -d: -f2 | tr '\n' ' ')
        [ "$row" = "$tasks" ] || echo "$how, task $task: row '$row', eval '$tasks'"
    done
    [ "$(grep -oE '"average_accuracy":[^,]*' run.json | head -n 1)" = "$(grep -oE '"average_accuracy":[^,]*' eval.json)" ] || echo average differs
    echo "$how: $(wc -w <<<"$row") tasks"
done
# without the numbers, which depend on the machine
streamfp eval --state slda/state-task-2.safetensors "${data[@]}" 2>talk |
    sed -nE '/^most confused/q; s/[0-9]+\.[0-9]+/N/g; s/ [0-9]+ of / N of /; p'
cat talk
