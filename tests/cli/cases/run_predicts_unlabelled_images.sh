# unlabelled images of a dataset: predicted in turn on a task-free stream that keeps its order, else excluded
export STREAMFP_REGISTRY=$PWD/runs.db
mkfile vit tiny.safetensors 1 0
for i in $(seq 20); do mkfile image p"$i".png 16 16 "$i"; done
echo half >broken.png
{
    echo path,label
    echo p1.png,
    for i in $(seq 2 19); do echo "p$i.png,$([ $((i % 6)) = 0 ] || echo c$((i % 2)))"; done
    echo broken.png,
    echo p20.png,
} >list.csv
run() { # OUT OPTIONS...
    local out=$1
    shift
    streamfp run --preset paper --backbone tiny.safetensors --threads 1 --batch 4 --data manifest:list.csv --out "$out" "$@" >table 2>talk
    echo "exit $?"
    grep -v 'stands in\|no test set\|prompt-layers\|^task ' talk
    grep '^  unlabelled:' table
    tr -d ' \n' <"$out/result.json" | grep -Eo '"samples":\{[^}]*\}|"labels":\{[^}]*\}'
}
run free --tasks free --attune off
sed 's/,"class":.*//' free/predictions.jsonl
grep -c '"class":"c[01]","probability":0\.' free/predictions.jsonl
head -n 1 free/predictions.jsonl # before any training
run head --tasks free --method ncm --clock virtual --rate 100 --costs <(echo 0.001)
cut -d, -f1-3 head/predictions.jsonl | cmp - <(cut -d, -f1-3 free/predictions.jsonl) && echo "the same, at the same moments"
run tasks --tasks 2 --attune off
[ -e tasks/predictions.jsonl ] || echo "no predictions"
# the clock includes the time of predictions: the last batch, which follows them, is processed later than without them
{
    echo path,label
    for i in 1 2; do echo "p$i.png,c$i"; done
    for i in $(seq 3000); do echo "p3.png,"; done # far more than a batch may be delayed by
    for i in 4 5; do echo "p$i.png,c1"; done
} >list.csv
run clock --tasks free --batch 1 --clock virtual --rate 1000000 --queue 10 --attune off
number() { tr -d ' \n' <clock/result.json | grep -Eo "\"$1\":[0-9.e-]+" | head -n 1 | cut -d: -f2; }
awk -v lag="$(number max)" -v work="$(number select) $(number train) $(number buffer)" \
    'BEGIN { split(work, w); if (lag > w[1] + w[2] + w[3]) print "counted"; else print "not counted:", lag, work }'
# they arrive like other images: a batch after many of them is not late, and none is dropped
cat >list.csv <<END
path,label
p1.png,c1
$(for i in $(seq 80); do echo "p3.png,"; done)
p2.png,c2
broken.png,
END
run rate --tasks free --batch 1 --queue 0 --clock virtual --rate 10 --costs <(echo 0.5) --attune off
tr -d ' \n' <rate/result.json | grep -Eo '"lag":\{"mean[^}]*\}'
