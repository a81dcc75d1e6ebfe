# an invalid line of labels.csv is reported once, whether it existed before or is added later
export STREAMFP_REGISTRY=$PWD/runs.db
mkfile vit tiny.safetensors 1 0
mkdir -p in/cat in/dog
for i in 1 2 3; do
    mkfile image "in/$i.png" 20 20 "$i"
    mkfile image "in/cat/$i.png" 20 20 "1$i"
    mkfile image "in/dog/$i.png" 20 20 "2$i"
done
: >in/.end
run() { streamfp run --backbone tiny.safetensors --method ncm --data dir:in --batch 2 --threads 1 --out "$1" 2>&1 >/dev/null | grep labels; }
printf 'name,label\n1.png,cat\n\n' >in/labels.csv
run good
printf '2.png\n3.png,\n' >>in/labels.csv
run bad
# a last line without a line end counts when the stream ends; quotes are those of CSV
late() { tr -d ' \n' <"$1/result.json" | grep -o '"late":[0-9]*'; }
printf '"1.png","cat"\n2.png,dog' >in/labels.csv
run unended
late unended
printf '1.png,cat\n"2.png,dog' >in/labels.csv
run unclosed
late unclosed
rm in/.end
printf '1.png,cat\n' >in/labels.csv
run later >out &
wait_until [ -s later/predictions.jsonl ]
printf '2.png,\n3.png,dog\n' >>in/labels.csv
mkfile image in/cat/4.png 20 20 4
wait_until grep -q cat/4.png later/events.jsonl # the list was read before
: >in/.end
wait
cat out
