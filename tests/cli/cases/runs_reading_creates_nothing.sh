# neither the registry nor its parent directories
export STREAMFP_REGISTRY=no/where/runs.db
streamfp runs
echo "exit $?"
streamfp runs --json
echo "exit $?"
streamfp runs show 1
echo "exit $?"
streamfp runs compare nowhere 2
echo "exit $?"
ls
echo "--- an empty file stays empty"
STREAMFP_REGISTRY=runs.db
: >runs.db
streamfp runs
wc -c <runs.db
streamfp runs add nowhere
echo "exit $?"
