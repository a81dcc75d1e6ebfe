# Two heads on a small stream: the table, its files, the dry run before it and the second call after it. Times vary.
export STREAMFP_REGISTRY=$PWD/runs.db
streamfp pretrain --data synthetic:16 --img-size 16 --patch 8 --dim 16 --depth 3 --heads 1 --batch 16 --epochs 1 --score-every 0 \
    --threads 1 --out pre >log 2>&1 || cat log
sweep() {
    streamfp sweep --grid method=ncm,slda --seeds 2 --data synthetic:60 --tasks 2 --eval-limit 4 --threads 1 --batch 5 \
        --backbone pre/model.safetensors --out "${out:-out}" "$@"
}
without_times() { sed -E 's/ +[0-9]+\.[0-9] s\b/ TIME/; s/[0-9.]+ s, ETA [0-9:]+/TIME/; s/ +[0-9]+\.[0-9]( ± [0-9.]+)?$/ RUNTIME/'; }
echo "--- dry run"
sweep --dry-run 2>&1 | without_times
ls
echo "--- sweep"
sweep >table 2>progress || cat progress
sed 's/accuracy [0-9.]*/accuracy A/' progress | without_times
grep -Ec '^method (ncm|slda) +[*0-9]' table
grep -E '^(sweep:|settings |page:)' table
tail -n +2 out/tables/sweep.csv | cut -d, -f1
(cd out && find . -name result.json | wc -l && ls tables)
echo "--- again"
sweep 2>&1 >again | cat
diff table again && echo same
echo "--- dry run with another seed: estimated by the runs that have finished"
sweep --seeds 3 --dry-run 2>&1 | without_times
echo "--- check"
sweep --check out/results.json 2>&1 >again
out=elsewhere sweep --check out/results.json 2>&1 >again | grep same
sweep --json | grep -o '"state":"[a-z]*"' | sort | uniq -c
echo "--- other settings"
out=elsewhere sweep --check out/results.json --eval-limit 3 >again
out=elsewhere sweep --eval-limit 3 2>&1 >again | grep replaced
