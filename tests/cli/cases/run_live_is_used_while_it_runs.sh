# a live run has a state, a result and a report before its end; what it skips and evaluates is reported meanwhile
export STREAMFP_REGISTRY=$PWD/runs.db
mkdir -p in/cat in/dog test/cat test/dog
for i in $(seq 30); do
    mkfile image "in/cat/$i.png" 32 32 "$i"
    mkfile image "in/dog/$i.png" 32 32 "1$i"
done
mkfile image test/cat/1.png 32 32 500
mkfile image test/dog/1.png 32 32 1500
echo half >in/dog/half.png
args=(run --data watch:in --test folder:test --eval-every 1 --batch 4 --threads 1 --checkpoint-every 0.1 --out out)
run_has() { streamfp runs show out --json | grep -q "$1"; }
standing() { streamfp runs | sed -nE 's/.*cwd\/out ?(.*)/\1/p'; }
streamfp "${args[@]}" >stdout 2>stderr &
pid=$!
wait_until run_has '"learned":60,'
wait_until grep -q 'half.png' stderr
wait_until grep -q 'on the test set' stderr
grep -E '^streamfp: warning' stderr
grep -Eq '^accuracy [01]\.[0-9]{4} on the test set after [0-9]+ samples$' stderr || cat stderr
streamfp runs show out | grep '^finished'
streamfp runs show out --json | grep -o '"finished":[a-z]*'
standing
streamfp runs --json | grep -o '"finished":[a-z]*,"running":[a-z]*'
streamfp predict --state out --topk 1 test/cat/1.png 2>/dev/null | sed -E 's/\t(cat|dog)\t[0-9.]+ %(\tnone of these\?)?/ CLASS/'
streamfp eval --state out --data folder:test 2>/dev/null | grep -c '^  accuracy '
[ -s out/report.html ] && echo "a report"
# predictions have the time of day and, once there are enough samples, a score for images of no class
mkfile image in/who.png 32 32 9
wait_until grep -q who.png out/predictions.jsonl
sed -E 's/"t":[0-9]+/"t":T/; s/"class":"(cat|dog)","probability":[0-9.e-]+,"unknown":[01](\.[0-9e-]+)?/CLASS/; s/[0-9-]{10}T[0-9:]{8}\.[0-9]{3}Z/TIME/; s/"id":[0-9]+/"id":ID/' out/predictions.jsonl
head -n 1 out/events.jsonl | grep -Eo '"time":"[^"]*"|"labels":\["(cat|dog)"' | sed -E 's/[0-9-]{10}T[0-9:]{8}\.[0-9]{3}Z/TIME/'
# killed: not finished, and a directory that only --resume continues
{ kill -9 $pid && wait $pid; } 2>/dev/null
standing
streamfp "${args[@]}" 2>&1 | grep -v 'stands in'
cp -r out damaged
rm -f damaged/checkpoint.old
: >damaged/checkpoint
streamfp "${args[@]}" --out damaged 2>&1 | grep -v 'stands in'
touch in/.end
streamfp "${args[@]}" --resume >stdout 2>stderr
echo "exit $?"
standing
streamfp runs show out | grep '^finished'
