# dropped samples are counted, evaluations are at the end of their task, and the processed batches are as computed on paper
export STREAMFP_REGISTRY=$PWD/runs.db
mkfile vit tiny.safetensors 1 0
run() { # OUT OPTIONS...
    local out=$1
    shift
    streamfp run --preset paper --backbone tiny.safetensors --threads 1 --batch 4 --attune off --out "$out" "$@" 2>talk >/dev/null || cat talk
    grep 'clock paper' talk
}
number() { # OUT: prints the main numbers
    tr -d ' \n' <"$1/result.json" | grep -Eo '"samples":\{[^}]*\}|"coverage":[^,]*|"offered":[0-9]+,"task":[0-9]+'
}
served() { # OUT: prints the batches by their first sample
    grep -Eo '"offered":\[[0-9]+' "$1/events.jsonl" | grep -Eo '[0-9]+' | while read -r id; do echo $((id / 4)); done | tr '\n' ' '
    echo
}
for i in $(seq 33); do mkfile image p$i.png 16 16 "$i"; done
{
    echo path,label,domain,task
    for i in $(seq 33); do echo "p$i.png,c$((i % 2)),A,0"; done
    echo p1.png,c2,B,0
} >list.csv

echo "short batches that preset paper excludes are offered and dropped"
echo 0.1 >costs
run paper --data synthetic:222 --tasks 5 --clock paper --rate 100 --costs costs --eval-limit 2
number paper
run free --data synthetic:222 --tasks free --clock paper --rate 100 --costs costs --eval-limit 2
number free
echo "tasks without a processed batch"
echo 1000 >costs
run none --data synthetic:200 --tasks 5 --clock virtual --rate 100 --costs costs --eval-limit 2
number none
echo "classes of a domain that is not selected"
run domain --data manifest:list.csv --tasks domain:A --test manifest:list.csv
number domain
echo "a learner that finishes exactly when a batch arrives"
printf '#%0200d\n0.4 \r\n' 7 >costs
for policy in drop-oldest drop-newest block; do
    run tie-$policy --data synthetic:80 --tasks free --clock virtual --rate 20 --costs costs --queue 1 --queue-policy $policy --buffer none
    served tie-$policy
    tr -d ' \n' <tie-$policy/result.json | grep -Eo '"lag":\{"mean":[0-9.]{5}'
done
# the paper's clock measures a learner that knows the classes of the task, which is necessary without replay
run measured --data synthetic:40 --tasks 2 --clock paper --rate 0.01 --buffer none --calibrate 1 | sed -E 's/[0-9.e-]+ s/T s/g; s/C_S [^,;]*/C_S N/'
