# two classes on a plane: in each, three close points and one apart
cat >f.csv <<'CSV'
x,y
1,0
0.99,0.1
0.98,0.2
0,1
-1,0
-0.99,0.1
-0.98,0.2
0,-1
CSV
printf '0\n0\n0\n0\n1\n1\n1\n1\n' >y.csv
printf '0.9 0.1\n0.8 0.2\n0.7 0.3\n0.2 0.8\n0.1 0.9\n0.2 0.8\n0.3 0.7\n0.6 0.4\n' >p.txt
for method in kcenter camel craig gradmatch; do
    echo "$method"
    streamfp select --method $method --features f.csv --labels y.csv --probs p.txt --ratio 0.5 | awk '{ printf "%d %.3f\n", $1, $2 }'
done
for method in random d2; do
    echo "$method"
    streamfp select --method $method --features f.csv --ratio 0.5 --seed 3 >a
    streamfp select --method $method --features f.csv --ratio 0.5 --seed 3 --threads 2 | cmp - a
    streamfp select --method $method --features f.csv --ratio 0.5 --seed 4 | cmp -s - a || echo 'another seed, other rows'
    cut -f1 a | sort -u | wc -l
done
streamfp select --method d2 --distance euclidean --features f.csv --ratio 0.25 | wc -l
streamfp select --method kcenter --features f.csv --ratio 0.25 --json
streamfp select --method craig --features f.csv --labels y.csv --probs p.txt --ratio 1 --json
