# other kinds of pools, with tasks and task-free: a repeated run has the same state, and eval gives the numbers of the run
export STREAMFP_REGISTRY=$PWD/runs.db
run=(run --preset paper --img-size 32 --data synthetic:60 --batch 10 --seed 4 --eval-limit 5 --threads 1)
for kind in l2p dualprompt; do
    for tasks in 2 free; do
        for out in a b; do
            streamfp "${run[@]}" --tasks $tasks --pool-kind $kind --out $out --json >$out.json 2>talk || cat talk
        done
        cmp a/state.safetensors b/state.safetensors
        echo "$kind, tasks $tasks: $(grep -oE '"trained":[0-9]+' a.json)"
        streamfp inspect a/state.safetensors 2>&1 | grep -E '^prompt\.._|^ +(pool-kind|pool|prompt-layers):' | tr -s ' ' | sed -E 's/, [0-9]+\)$/, D)/'
        [ $tasks = free ] || streamfp eval --state a --img-size 32 --data synthetic:60 --tasks $tasks --eval-limit 5 --threads 1 --json >eval.json 2>talk || cat talk
        [ $tasks = free ] || [ "$(grep -oE '"average_accuracy":[^,]*' a.json | head -n 1)" = "$(grep -oE '"average_accuracy":[^,]*' eval.json)" ] ||
            echo average differs
        rm -r a b
    done
done
streamfp "${run[@]}" --pool-kind best 2>&1 | grep -v 'stands in'
streamfp "${run[@]}" --pool-kind dualprompt --prompt-layers 0-1 2>&1 | grep -v 'stands in'
