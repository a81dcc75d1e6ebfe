# the logs of a live run are rotated by size; other programs may cut, move and remove them, and SIGHUP does not end the run
export STREAMFP_REGISTRY=$PWD/runs.db
mkfile vit tiny.safetensors 1 0
mkdir -p in/cat
mkfile image in/cat/1.png 16 16 1
n=0
put() { # COUNT: unlabelled images
    for ((k = 0; k < $1; k++)); do
        n=$((n + 1))
        mkfile image in/.new 16 16 $((n + 100))
        mv in/.new "$(printf 'in/u%03d.png' $n)"
    done
}
has() { grep -q "\"$2\"" "out/$1"; }
args=(run --backbone tiny.safetensors --data watch:in --method ncm --batch 4 --threads 1 --log-size 1000 --log-files 2 --checkpoint-every 0.1 --out out)
streamfp "${args[@]}" >stdout 2>stderr &
pid=$!
put 60
wait_until has predictions.jsonl u060.png
(cd out && ls predictions.jsonl*)
for f in out/predictions.jsonl*; do [ "$(wc -c <"$f")" -le 1000 ] || echo "$f is too long"; done
# logrotate: its normal mode, then copytruncate
mv out/predictions.jsonl moved
kill -HUP $pid
put 1
wait_until has predictions.jsonl u061.png
wc -l <out/predictions.jsonl
: >out/predictions.jsonl
put 1
wait_until has predictions.jsonl u062.png
wc -l <out/predictions.jsonl
mkdir in/dog
mkfile image in/dog/1.png 16 16 2
wait_until grep -qa dog out/checkpoint
{ kill -9 $pid && wait $pid; } 2>/dev/null
# resumed with other limits, and without the lines before the checkpoint
rm out/events.jsonl
touch in/.end
put 1
streamfp "${args[@]}" --log-size 0 --resume >stdout 2>stderr
echo "exit $?"
grep -v 'resuming' stderr
grep -c u063.png out/predictions.jsonl
streamfp run --backbone tiny.safetensors --data synthetic:40 --method ncm --threads 1 --log-size 0 --out no
streamfp run --backbone tiny.safetensors --data synthetic:40 --method ncm --threads 1 --checkpoint-every -1 --out no
