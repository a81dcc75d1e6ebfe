# a live run is resumed without --queue and --clock, or with others: the allocation that follows from them may change, too
export STREAMFP_REGISTRY=$PWD/runs.db
mkdir -p in/cat in/dog
run() { streamfp run --data watch:in --threads 1 --out out "$@" 2>&1 >/dev/null | grep -v 'stands in\|samples/s'; echo "exit ${PIPESTATUS[0]}"; }
for i in 1 2 3; do mkfile image "in/cat/$i.png" 32 32 "$i"; mkfile image "in/dog/$i.png" 32 32 "$((i + 5))"; done
touch in/.end
run --clock real --queue 2
mkfile image in/dog/4.png 32 32 10
run --clock real --resume
mkfile image in/dog/5.png 32 32 11
run --resume
mkfile image in/dog/6.png 32 32 12
run --clock real --queue 3 --queue-policy block --resume
tr -d ' \n' <out/result.json | grep -o '"offered":[0-9]*' | head -1
# of a dataset, the option that is missing is named
streamfp run --data folder:in --rate 1 --queue 2 --out set >/dev/null 2>&1
streamfp run --data folder:in --rate 1 --out set --resume
