# a file at its size limit (ulimit -f) is reported like a full disk: no signal ends the program
export STREAMFP_REGISTRY=$PWD/runs.db
ulimit -f 8
streamfp run --img-size 32 --data synthetic:40 --eval-limit 2 --threads 1 --out out
