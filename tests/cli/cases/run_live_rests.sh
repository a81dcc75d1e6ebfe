# a watched folder where little comes: what was learned is saved by the clock on the wall, so that a kill loses nothing of it
export STREAMFP_REGISTRY=$PWD/runs.db
mkfile vit tiny.safetensors 1 0
mkdir -p in/cat in/dog
for i in 1 2; do
    mkfile image "in/cat/$i.png" 16 16 "$i"
    mkfile image "in/dog/$i.png" 16 16 "1$i"
done
mkfile image in/who.png 16 16 9
args=(run --backbone tiny.safetensors --data dir:in --method ncm --batch 4 --threads 1 --out out)
until_there() { # COMMAND...: up to 30 s
    for ((i = 0; i < 600; i++)); do
        if "$@"; then return; fi
        sleep 0.05
    done
    echo "never: $*"
}
lines() { [ -e "out/$1" ] && [ "$(wc -l <"out/$1")" -ge "$2" ]; }
differs() { ! cmp -s "$1" "$2"; }
streamfp "${args[@]}" >stdout 2>stderr &
pid=$!
until_there [ -e out/checkpoint ]
until_there lines predictions.jsonl 1
# moved into the folder of its class, it is the same image
mkdir in/bird
mv in/who.png in/bird/
for i in 1 2 3; do mkfile image "in/bird/$i.png" 16 16 "2$i"; done
until_there grep -qa bird out/checkpoint # the second
{ kill -9 $pid && wait $pid; } 2>/dev/null # the shell tells of it, in either
id=$(sed -E 's/\{"id":([0-9]+),.*/\1/' out/predictions.jsonl)
grep -Eq "\"offered\":\[([0-9]+,)*${id}[],]" out/events.jsonl && echo "its id is its own"
rm -r in/cat in/bird
# so does one that is labelled by a line, when it is killed before or after it was learned from
mkfile image in/her.png 16 16 8
mkfile image in/it.png 16 16 7
streamfp "${args[@]}" --resume >stdout 2>stderr &
pid=$!
until_there lines predictions.jsonl 3
until_there grep -qa 'unlabelled[\\":]*3' out/checkpoint
cp out/checkpoint before
echo her.png,dog >in/labels.csv
until_there differs before out/checkpoint
{ kill -9 $pid && wait $pid; } 2>/dev/null
# what still waits costs nothing
TIMEFORMAT=%U
{ time timeout -s INT 5 streamfp "${args[@]}" --resume >stdout 2>stderr; } 2>cpu
awk '{ print($1 < 1.5 ? "rests" : "is busy: " $1) }' cpu
touch in/.end
streamfp "${args[@]}" --resume >stdout 2>stderr
echo "exit $?"
cat stderr
tr -d ' \n' <out/result.json | grep -Eo '"samples":\{[^}]*\}|"labels":\{[^}]*\}|"class_names":\[[^]]*\]'
id=$(sed -nE 's/\{"id":([0-9]+),.*her.png.*/\1/p' out/predictions.jsonl)
grep -Eq "\"offered\":\[([0-9]+,)*${id}[],]" out/events.jsonl && echo "its id is its own"
# nothing to go on from, and it is told
rm -r out/checkpoint* out/result.json
streamfp "${args[@]}" --resume >stdout 2>stderr
cat stderr
