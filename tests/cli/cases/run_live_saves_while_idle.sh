# a watched directory with few new files: checkpoints are written by wall time, so that a kill loses nothing
export STREAMFP_REGISTRY=$PWD/runs.db
mkfile vit tiny.safetensors 1 0
mkdir -p in/cat in/dog
for i in 1 2; do
    mkfile image "in/cat/$i.png" 16 16 "$i"
    mkfile image "in/dog/$i.png" 16 16 "1$i"
done
mkfile image in/who.png 16 16 9
args=(run --backbone tiny.safetensors --data dir:in --method ncm --batch 4 --threads 1 --checkpoint-every 1 --out out)
lines() { [ "$(wc -l <"out/$1")" -ge "$2" ]; }
learned() { tr -d " \n" <out/result.json | grep -q "\"learned\":$1,"; }
differs() { ! cmp -s "$1" "$2"; }
streamfp "${args[@]}" >stdout 2>stderr &
pid=$!
wait_until [ -e out/checkpoint ]
wait_until lines predictions.jsonl 1
# an image that is moved into its class directory is the same image
mkdir in/bird
mv in/who.png in/bird/
for i in 1 2 3; do mkfile image "in/bird/$i.png" 16 16 "2$i"; done
wait_until learned 8 # in the second checkpoint
{ kill -9 $pid && wait $pid; } 2>/dev/null # the shell may report the kill
id=$(sed -E 's/\{"id":([0-9]+),.*/\1/' out/predictions.jsonl)
grep -Eq "\"offered\":\[([0-9]+,)*${id}[],]" out/events.jsonl && echo "the image keeps its id"
rm -r in/cat in/bird
# the same for an image that is labelled by a line, if the kill is before or after it was processed
mkfile image in/her.png 16 16 8
mkfile image in/it.png 16 16 7
streamfp "${args[@]}" --resume >stdout 2>stderr &
pid=$!
wait_until lines predictions.jsonl 3
wait_until grep -qa 'unlabelled[\\":]*3' out/checkpoint
cp out/checkpoint before
echo her.png,dog >in/labels.csv
wait_until differs before out/checkpoint
{ kill -9 $pid && wait $pid; } 2>/dev/null
# a run with waiting images uses no processor time while it is idle
streamfp "${args[@]}" --resume >stdout 2>stderr &
pid=$!
wait_until grep -q resuming stderr
ticks() { sed 's/.*) //' /proc/$pid/stat | cut -d ' ' -f 12,13; }
idle() {
    local before
    before=$(ticks)
    sleep 0.2
    [ "$(ticks)" = "$before" ]
}
wait_until idle
kill -TERM $pid
wait $pid
touch in/.end
streamfp "${args[@]}" --resume >stdout 2>stderr
echo "exit $?"
cat stderr
tr -d ' \n' <out/result.json | grep -Eo '"samples":\{[^}]*\}|"labels":\{[^}]*\}|"class_names":\[[^]]*\]'
id=$(sed -nE 's/\{"id":([0-9]+),.*her.png.*/\1/p' out/predictions.jsonl)
grep -Eq "\"offered\":\[([0-9]+,)*${id}[],]" out/events.jsonl && echo "the image keeps its id"
# there is no checkpoint, which is reported
rm -r out/checkpoint* out/result.json
streamfp "${args[@]}" --resume >stdout 2>stderr
cat stderr
