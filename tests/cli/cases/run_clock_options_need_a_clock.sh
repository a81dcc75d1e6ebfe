# options without effect because of the clock or another option are refused; default values are accepted
try() {
    streamfp run --data synthetic:20 --threads 1 --out out "$@" 2>&1 | grep -v 'stands in' >&2
    echo "exit ${PIPESTATUS[0]}" >&2
}
try --queue 2 --clock off
try --queue-policy block --clock paper --rate 10
try --costs nowhere
try --costs nowhere --clock real --rate 10
try --calibrate 30
try --calibrate 30 --rate 10
try --set queue=3
echo 0.5 >costs
try --calibrate 30 --costs costs --clock paper --rate 10
try --init-state nowhere --method ranpac
try --allocate adaptive
try --allocate adaptive --clock off
try --preset paper --allocate adaptive --rate 10
printf 'preset: paper\nsigma: 0.5\nqueue: 2\n' >asks.yaml
try --config asks.yaml
ls
export STREAMFP_REGISTRY=$PWD/runs.db
printf 'queue: 0\ncalibrate: 20\n' >defaults.yaml
streamfp run --data synthetic:20 --threads 1 --out out --config defaults.yaml 2>&1 | grep -c 'offered  '
