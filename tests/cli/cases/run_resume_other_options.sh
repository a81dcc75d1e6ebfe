# a run is resumed with the same options, or the changed one is named; options that do not matter may change
export STREAMFP_REGISTRY=$PWD/runs.db
replica folder data --each 2 >/dev/null
replica folder other --each 2 --seed 9 >/dev/null
run() { streamfp run --threads 1 --batch 10 --out out --tasks 2 "$@" 2>&1 >/dev/null | grep -v 'stands in'; echo "exit ${PIPESTATUS[0]}"; }
run --data folder:data --method ncm
cp -r out before
again() { run --resume "$@"; }
again --data folder:data --method ncm --seed 3
again --data folder:other --method ncm
again --data folder:data --method ncm --test folder:data
again --data folder:data --method slda
again --data folder:data
again --data folder:data --method ncm --preset paper
again --data folder:data --method ncm --eval-limit 5
again --data folder:data --method ncm --tasks 5
diff -r out before && echo "as before"
echo "the same:"
again --data "folder:$PWD/data" --method ncm --threads 2 --eval-every 3 --sigma .50 --seed 0
mv data moved
again --data folder:moved --method ncm
diff -r out before && echo "as before"
