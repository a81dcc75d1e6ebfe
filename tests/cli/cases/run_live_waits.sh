# a run on an empty directory says that it waits, once
export STREAMFP_REGISTRY=$PWD/runs.db
mkfile vit tiny.safetensors 1 0
mkdir in
streamfp run --backbone tiny.safetensors --data watch:in --method ncm --threads 1 --out out >stdout 2>stderr &
for ((i = 0; i < 1200; i++)); do
    if grep -q waiting stderr; then break; fi
    sleep 0.05
done
touch in/.end
wait $!
echo "exit $?"
cat stderr
