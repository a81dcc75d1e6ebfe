# without --preset a run has the best known settings; other choices of the user replace parts of them
# Plain builds only: its many runs take a minute with sanitizers.
export STREAMFP_REGISTRY=$PWD/runs.db
run() { # OPTIONS...
    rm -rf out
    streamfp run --img-size 32 --data synthetic:60 --tasks 2 --batch 10 --eval-limit 2 --threads 1 --out out "$@" >stdout 2>stderr || cat stderr
}
settings() {
    run "$@"
    echo "$* $(sed -n '/"config"/,/}/p' out/result.json | grep -oE '"(preset|head|taps|allocate|method|lr)": ?"[^"]*"' | tr -d '" \n' | sed 's/\([a-z0-9]\)\(preset\|head\|taps\|allocate\|method\|lr\):/\1 \2:/g')"
}
settings
settings --rate 1000
settings --head linear
settings --method slda
settings --method slda --taps 1
settings --lr 0.01
settings --preset best
settings --preset fast
settings --preset fast --method ncm
settings --preset default
echo "another way to spend the time:"
settings --rate 1000 --triage
settings --rate 1000 --controller
settings --rate 1000 --queue 2
settings --rate 1000 --queue 2 --queue-policy block
settings --rate 1000 --clock paper --calibrate 1
settings --rate 1000 --allocate queries
grep -B 2 ' trained on,' stdout | sed 's/ *[0-9]* \(offered\|learned\)/ N \1/; s/[0-9]* dropped/N dropped/'
grep -oE ' (train|closed form) [0-9.]*,$' stdout | sed 's/[0-9.]*,/N/'
grep -c 'training loss' out/report.html # nothing was trained
run --rate 1000 --triage --allocate adaptive
run --head linear --allocate queries
echo "in a file, or by --set:"
echo 'preset: fast' >fast.yaml
settings --config fast.yaml
settings --set preset=default
echo "every class is learned, and the state predicts as the run did:"
run
grep -oE '"coverage": [0-9.]*' out/result.json
streamfp eval --state out --img-size 32 --data synthetic:60 --tasks 2 --eval-limit 2 --threads 1 --json >eval.json 2>stderr || cat stderr
[ "$(grep -oE '"average_accuracy": ?[^,]*' out/result.json | head -n 1 | tr -d ' ')" = "$(grep -oE '"average_accuracy":[^,]*' eval.json)" ] || echo average differs
