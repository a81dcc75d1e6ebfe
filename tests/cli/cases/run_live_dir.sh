# a watched directory until Ctrl-C, which is a normal end; then only new files
export STREAMFP_REGISTRY=$PWD/runs.db
table() { grep -E '^  (offered|unlabelled:)' stdout; } # the number of trained samples depends on timing
mkdir -p in/cat
for i in 1 2 3 4 5; do mkfile image "in/cat/$i.png" 32 32 "$i"; done
mkfile image in/who.png 32 32 9
args=(run --data dir:in --batch 4 --threads 1 --out out)
predictions() { [ "$(wc -l <out/predictions.jsonl)" -ge "$1" ]; }
learned() { [ "$(grep -o '"offered":\[[^]]*' out/events.jsonl | grep -oE '[0-9]+' | wc -l)" -ge "$1" ]; }
set -m # a separate job: otherwise a background process ignores SIGINT
streamfp "${args[@]}" >stdout 2>stderr &
pid=$!
wait_until predictions 1
mkdir in/dog
for i in 1 2 3; do
    mkfile image "in/dog/.$i" 32 32 "1$i"
    mv "in/dog/.$i" "in/dog/$i.png"
done
echo 'who.png,dog' >in/labels.csv
mkfile image in/other.png 32 32 10
wait_until predictions 2
wait_until learned 9 # after a pause an incomplete batch is processed
kill -INT $pid
wait $pid
echo "exit $?"
grep -v 'stands in' stderr
table
grep report stdout
predicted() { sed 's/"t":[0-9]*,//; s/,"class":.*,"probability":.*//' out/predictions.jsonl; }
predicted
mkfile image in/dog/4.png 32 32 14
touch in/.end
# the run wrote more before it was killed, after its last checkpoint; images in the label queue are not predicted again
printf '{"id":10,"t":3,"name":"lost.png","class":"cat","probability":0.5}\n{"id":1' >>out/predictions.jsonl
streamfp "${args[@]}" --resume >stdout 2>stderr
echo "exit $?"
grep -v 'stands in' stderr
table
predicted
# no labelled image, and a file that is not an image: the readable images were predicted
mkdir -p one
for i in 1 2 3; do mkfile image "one/$i.png" 32 32 "$i"; done
: >one/empty.png
touch one/.end
streamfp run --data dir:one --threads 1 --out only >stdout 2>stderr
echo "exit $?, $(wc -l <only/predictions.jsonl) predicted"
tr -d ' \n' <only/result.json | grep -o '"skipped":[0-9]*' | head -1
