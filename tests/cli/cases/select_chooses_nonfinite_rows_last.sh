# rows 3 and 5 of ten are not finite; each method chooses them after all others, by index, and reports them
for i in 0 1 2 3 4 5 6 7 8 9; do
    case $i in 3) echo "nan,$i" ;; 5) echo "$i,-inf" ;; *) echo "$i,$((i * i % 7))" ;; esac
done >f.csv
printf '0\n1\n%.0s' 1 2 3 4 5 >y.csv
printf '0.7,0.3\n0.4,0.6\n%.0s' 1 2 3 4 5 >p.csv
# count, number of different rows, the last two
ends() { cut -f1 | tee all | wc -l | tr '\n' ' '; sort -u all | wc -l | tr '\n' ' '; tail -n 2 all | tr '\n' ' '; echo; }
for method in random kcenter camel craig gradmatch d2; do
    echo "$method"
    for ratio in 0.9 1; do
        streamfp select --method $method --features f.csv --labels y.csv --probs p.csv --ratio $ratio | ends
    done
    streamfp select --method $method --features f.csv --labels y.csv --probs p.csv --ratio 0.8 | cut -f1 | grep -c '^[35]$'
done
for seed in 1 2 3 4 5 6 7 8; do streamfp select --method random --features f.csv --ratio 0.5 --seed $seed; done 2>/dev/null | cut -f1 | sort -u | tr '\n' ' '
echo
# probabilities matter only for methods that use them
sed '8s/.*/nan,1/' p.csv >p7.csv
sed 's/nan\|-inf/0/' f.csv >finite.csv
for method in craig kcenter; do
    streamfp select --method $method --features finite.csv --labels y.csv --probs p7.csv --ratio 1 --json
done
# all rows are not finite
printf 'nan\ninf\n' >none.csv
for method in random kcenter d2; do streamfp select --method $method --features none.csv --ratio 0.5 --json; done
