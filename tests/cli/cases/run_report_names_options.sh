# report and result list the options that differ from their preset, also those of clock and evaluation
export STREAMFP_REGISTRY=$PWD/runs.db
run() { streamfp run --preset paper --threads 1 "$@" >/dev/null 2>talk || cat talk; }
listed_options() { grep -o 'The options are those of preset.*</header>' "$1/report.html" | sed 's/<[^>]*>//g'; }
printf '%s\n' 0.05 0.31 >costs
args=(--img-size 32 --data synthetic:60 --tasks 2 --batch 10 --eval-limit 5 --eval-every 3 --rate 400 --clock virtual --costs costs --queue 2)
run "${args[@]}" --sigma .50 --out a
run "${args[@]}" --sigma 0.5 --seed 3 --out b
run --img-size 32 --data synthetic:60 --method ncm --out c
run --data synthetic:20 --out d
for dir in a c d; do listed_options $dir; done
echo "--- the table of options"
sed 's,<tr,\n&,g; s,</tr>,\n,g' a/report.html | grep -E '<td>(img-size|test|rate|clock|costs|queue|method|eval-every|sigma|tasks)</td>' |
    sed 's,</td><td>, | ,g; s,<[^>]*>,,g'
grep -c 'not known' a/report.html
echo "--- result.json"
sed -n '/"defaults"/,/}/p' a/result.json | grep -E '"(img-size|rate|clock|queue|sigma|eval-limit)":'
streamfp run --preset paper "${args[@]}" --sigma 0.500 --threads 1 --out a --resume 2>&1 | grep -o 'already ended'
echo "--- one column: .50 is 0.5"
streamfp runs compare a b | sed -n 3p | cut -c1-30
echo "--- two presets"
run --img-size 32 --data synthetic:60 --tasks 2 --preset best --out e
run --img-size 32 --data synthetic:60 --tasks 2 --preset best --ridge plain --out f
run --img-size 32 --data synthetic:60 --tasks 2 --sigma 0.3 --out g
for dir in e f g; do listed_options $dir; done
sed -n '/"preset_values"/,/}/p' f/result.json
sed 's,<tr,\n&,g; s,</tr>,\n,g' f/report.html | grep -E '<td>(img-size|ridge|taps|sigma)</td>' | sed 's,</td><td>, | ,g; s,<[^>]*>,,g'
streamfp runs compare d e f g | sed -n '1,6 s/  .*//p'
streamfp runs compare e f g --json | grep -o '"options_that_differ":{[^}]*}'
