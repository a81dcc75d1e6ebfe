# preset paper: its settings, the clock that needs a rate, the measurement, and tasks without time for a batch
# Plain builds only: its many runs take a minute with sanitizers.
export STREAMFP_REGISTRY=$PWD/runs.db
run() {
    rm -rf out
    streamfp run --data synthetic:100 --tasks 2 --img-size 16 --batch 10 --threads 1 --eval-limit 20 --out out "$@" >stdout 2>stderr || cat stderr
}
keys='clock|calibrate|drop-rule|attune-topk|normalise'
settings() { sed -n '/"config"/,/}/p' out/result.json | grep -oE "\"($keys)\": ?\"[^\"]*\"" | tr '\n' ' '; }
messages() { grep -E '^(preset|clock|measuring)' stderr; }
run --preset paper
settings && echo
messages
echo "short last batches:"
run --preset paper --batch 7 && cat stderr
grep -E '^  (offered|dropped|excluded|trained on|replayed) ' stdout
grep -o 'replayed [0-9]*;[^.]*' out/report.html
echo "with a rate:"
run --preset paper --rate 1e9 --calibrate 2
settings && echo
messages
grep -o '"starved_tasks": [0-9]*' out/result.json
grep 'starved' stdout
echo 0.1 >costs
run --preset paper --rate 400 --costs costs
messages
grep -o '"starved_tasks": [0-9]*' out/result.json
grep -c 'starved' stdout
echo "with another clock, or none:"
run --preset paper --rate 1e9 --clock virtual --costs costs
messages
run --preset paper --rate max
messages
run --preset paper --clock off
messages
echo "a live stream has its own clock:"
timeout 300 streamfp run --data synthetic:0 --preset paper --rate 1e6 --threads 1 --img-size 16 --out live-out --queue 2 >/dev/null 2>stderr &
until [ -e live-out/events.jsonl ] || ! kill -0 $!; do sleep 0.05; done
kill -INT $! && wait $!
echo "exit $?"
grep -oE '"(clock|queue)": *"[^"]*"' live-out/result.json | head -2
