# without --preset a run has the best known settings; other choices of the user replace parts of them
# Plain builds only: its many runs take a minute with sanitizers.
export STREAMFP_REGISTRY=$PWD/runs.db
run() { # OPTIONS...
    rm -rf out
    streamfp run --img-size 32 --data synthetic:60 --tasks 2 --batch 10 --eval-limit 2 --threads 1 --out out "$@" >stdout 2>stderr || cat stderr
}
settings() {
    run "$@"
    echo "$* $(sed -n '/"config"/,/}/p' out/result.json | grep -oE '"(preset|taps|tap-mean|ridge|allocate|method)": ?"[^"]*"' | tr -d '" \n' | sed 's/\([a-z0-9]\)\(preset\|taps\|tap-mean\|ridge\|allocate\|method\):/\1 \2:/g')"
}
settings
settings --rate 1000
settings --method slda
settings --method slda --taps 1
settings --ridge plain
settings --preset best
settings --preset paper
echo "another way to spend the time:"
settings --rate 1000 --queue 2
settings --rate 1000 --queue 2 --queue-policy block
settings --rate 1000 --clock paper --calibrate 1
settings --rate 1000 --allocate fixed
grep -oE '^  (trained on|learned in closed form)' stdout
grep -c 'training loss' out/report.html # nothing is trained
run --rate 1000 --queue 2 --allocate adaptive
echo "in a file, or by --set:"
echo 'method: ncm' >ncm.yaml
settings --config ncm.yaml
settings --set preset=paper
echo "every class is learned, and the state predicts as the run did:"
run
grep -oE '"coverage": [0-9.]*' out/result.json
streamfp eval --state out --img-size 32 --data synthetic:60 --tasks 2 --eval-limit 2 --threads 1 --json >eval.json 2>stderr || cat stderr
[ "$(grep -oE '"average_accuracy": ?[^,]*' out/result.json | head -n 1 | tr -d ' ')" = "$(grep -oE '"average_accuracy":[^,]*' eval.json)" ] || echo average differs
