# a run on an empty directory says that it waits, once
export STREAMFP_REGISTRY=$PWD/runs.db
mkfile vit tiny.safetensors 1 0
mkdir in
streamfp run --backbone tiny.safetensors --data watch:in --method ncm --threads 1 --out out >stdout 2>stderr &
wait_until grep -q waiting stderr
touch in/.end
wait $!
echo "exit $?"
cat stderr
