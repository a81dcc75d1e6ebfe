# Resuming a run with another method is refused and changes nothing.
export STREAMFP_REGISTRY=$PWD/runs.db
run() { streamfp run --data synthetic:40 --tasks 2 --threads 1 --eval-limit 1 "$@" 2>&1 >/dev/null | grep -v 'stands in'; }
run --preset paper --out learner
run --out head --method ncm
for name in learner head; do cp -r $name $name.before; done
run --preset paper --out learner --resume --method ncm
run --out head --resume --method slda
run --out head --resume
for name in learner head; do diff -r $name $name.before && echo "$name as before"; done
