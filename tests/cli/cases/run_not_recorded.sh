# a registry that cannot be written to costs nothing but the record, which can be made up for
touch file
STREAMFP_REGISTRY=$PWD/file/runs.db streamfp run --img-size 32 --data synthetic:40 --eval-limit 2 --threads 1 --out out >stdout
echo "exit $?"
export STREAMFP_REGISTRY=$PWD/runs.db
streamfp runs add out
