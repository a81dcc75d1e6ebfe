# Runs whose directory is gone are marked, can still be shown, and can be removed from the registry.
export STREAMFP_REGISTRY=runs.db
streamfp runs forget 1 2>&1 | sed 's/:.*:/: ...:/'
for out in a b c d; do streamfp run --data synthetic:40 --tasks 2 --method ncm --out $out >/dev/null 2>&1; done
rm -r a b
streamfp runs | sed 's/^.*cwd/cwd/'
streamfp runs --json | grep -o '"gone":[a-z]*' | tr '\n' ' '
echo
streamfp runs show 1 | grep method
streamfp runs show a | grep method
streamfp runs forget a
streamfp runs forget --gone
streamfp runs forget 3 99 2>&1 | sed "s/registry .*, expected/registry ..., expected/" # none is removed
streamfp runs forget 3 --json
streamfp runs | sed 's/^.*cwd/cwd/'
ls
echo "--- usage"
streamfp runs forget
streamfp runs forget 4 --gone
streamfp runs --gone
streamfp runs forget 3 2>&1 | sed 's/registry .*, expected/registry ..., expected/'
