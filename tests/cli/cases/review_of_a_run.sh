# learned samples with doubtful labels, and unlabelled ones whose labels would teach most, of a run with a watched directory
export STREAMFP_REGISTRY=$PWD/runs.db
mkfile vit tiny.safetensors 1 0
mkdir -p in/cat in/dog
for i in 1 2 3 4 5 6; do
    mkfile image "in/cat/$i.png" 16 16 "$i"
    mkfile image "in/dog/$i.png" 16 16 "1$i"
    mkfile image "in/who$i.png" 16 16 "3$i"
done
touch in/.end
streamfp run --backbone tiny.safetensors --data watch:in --method ncm --batch 4 --threads 1 --cache features --out out >/dev/null 2>&1
streamfp suspects out --json | grep -oE '"judged":[0-9]+|"unreadable":[0-9]+'
streamfp queue out --limit 2 | sed 's/ [0-9.]* .*/ .../'
rm in/who2.png in/cat/3.png
printf x >in/dog/2.png
streamfp queue out --json --limit 9 | grep -oE '"waiting":[0-9]+|"unreadable":[0-9]+'
streamfp suspects out --limit 1 | tail -1
streamfp suspects in
streamfp queue out --limit 0
streamfp suspects
