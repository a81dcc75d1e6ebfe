# without a name all experiments are listed; wrong names and options are refused before anything is written
export STREAMFP_REGISTRY=$PWD/runs.db
streamfp experiment
streamfp experiment --json | grep -o '"name":"E[134][^,]*'
try() {
    echo "--- $*"
    streamfp "$@"
    echo "exit $?"
}
try experiment E99 --out out
try experiment E3,e4 --out out
try experiment E3 E4 --out out
try experiment E3 --seeds 0 --out out
try experiment E3 --seeds 20 --out out
try experiment E3 --data nothing --out out
try experiment A2 --backbones 'a b' --out out
ls
