# no line of the table is longer than 80 columns, for any number of tasks; and no number is "-0.0000"
export STREAMFP_REGISTRY=$PWD/runs.db
args=(run --preset paper --img-size 32 --data synthetic:100 --tasks 10 --eval-limit 1 --clock virtual --rate 1e9 --batch 2 --threads 1 --out out)
streamfp "${args[@]}" >table || echo "failed"
awk 'length > 80 { print "too long: " $0 } END { print NR, "lines" }' table
grep -A 1 '^  \(stripes\|arrow\) ' table | sed 's/[0-9]\.[0-9]*/N/g'
grep -E '^  (offered|trained|time: learn)' table | sed 's/ *[0-9.]\+/ N/g'
rm out/checkpoint* # only the result is left
sed -i 's/"backward_transfer": [^,]*/"backward_transfer": -1e-17/' out/result.json
streamfp "${args[@]}" --resume 2>/dev/null | grep backward
streamfp runs show out | grep backward
