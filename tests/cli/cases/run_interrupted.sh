# the first Ctrl-C completes the timestamp, writes a checkpoint and prints how to resume; until the end there is no state to predict with
export STREAMFP_REGISTRY=$PWD/runs.db
messages() { grep -Ev "^(task|evaluating) |: a checkpoint takes" stderr; } # without messages that only slow machines print
mkdir -p runs/1
set -m # a separate job: otherwise a background process ignores SIGINT
interrupt() { # DIR OPTIONS...
    local directory=$1
    streamfp "${@:2}" >stdout 2>stderr &
    local pid=$!
    # the run has started when its events file exists
    until [ -e "$directory/events.jsonl" ] || ! kill -0 $pid; do sleep 0.01; done
    kill -INT $pid
    wait $pid
    echo "exit $?"
}
# A stream that is longer each time, until the signal arrives before the end of the first task.
for samples in 3000 12000 48000 192000; do
    rm -rf out runs.db
    args=(run --img-size 32 --data synthetic:$samples --tasks 2 --eval-limit 2 --threads 1 --out out)
    interrupt out "${args[@]}" >exit
    [ -e out/state-task-1.safetensors ] || break
done
cat exit stdout
messages
[ -s out/checkpoint ] || echo "no checkpoint"
streamfp predict --state out out/checkpoint
streamfp eval --state out --data synthetic:20
streamfp inspect out
: >out/state-task-1.safetensors # as after the first task
streamfp inspect out
rm out/state-task-1.safetensors
[ ! -e out/result.json ] || echo "a result already"
streamfp runs | grep -o 'out .*'
streamfp runs show 1 >/dev/null || echo "not shown"
touch out/checkpoint.tmp.77 out/state-task-1.safetensors.tmp.77 out/mine.tmp.77 # the first two are as a killed process leaves them
streamfp "${args[@]}" --resume >stdout 2>stderr
echo "exit $?"
grep -c 'average accuracy' stdout
messages
sed 's/^{"t":\([0-9]*\),.*/\1/' out/events.jsonl | cmp - <(seq 0 $((samples / 20 - 1))) && echo "each timestamp once"
streamfp runs | grep -c .
streamfp runs | grep -o 'out$'
ls out | grep tmp
echo "a directory that the program has chosen:"
interrupt runs/2 run --img-size 32 --data synthetic:3000 --tasks 2 --eval-limit 2 --threads 1
messages | grep continue
