# a run is resumed only with the same images, training and test; their location does not matter
export STREAMFP_REGISTRY=$PWD/runs.db
replica folder data --each 3 >/dev/null
replica folder test --each 2 --seed 9 >/dev/null
for d in data test; do (cd $d && find . -name '*.png' -o -name '*.jpg' | sort | sed -E 's|^\./(([^/]*)/.*)|\1,\2|') >$d/list.csv; done
run() { streamfp run --method ncm --threads 1 --batch 5 --out out --tasks free --test manifest:test/list.csv --data manifest:"$1" --resume 2>&1 >/dev/null; echo "exit $?"; }
run data/list.csv
cp -r out before
cp data/list.csv whole
sort -r whole >data/list.csv
run data/list.csv
head -n -1 whole >data/list.csv
run data/list.csv
sed '2s/,.*/,another/' whole >data/list.csv
run data/list.csv
cp whole data/list.csv
cp test/list.csv whole
head -n -1 whole >test/list.csv
run data/list.csv
cp whole test/list.csv
diff -r out before && echo "as before"
mv data moved
run moved/list.csv
