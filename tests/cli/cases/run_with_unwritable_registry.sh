# an unwritable registry prevents only the registration, which can be repeated
touch file
STREAMFP_REGISTRY=$PWD/file/runs.db streamfp run --img-size 32 --data synthetic:40 --eval-limit 2 --threads 1 --out out >stdout
echo "exit $?"
export STREAMFP_REGISTRY=$PWD/runs.db
streamfp runs add out
