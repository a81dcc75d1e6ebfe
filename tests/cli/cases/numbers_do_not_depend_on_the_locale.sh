# in a locale with a decimal comma, options are read and files are written with a decimal point
if ! localedef -i de_DE -f UTF-8 "$PWD/de_DE.UTF-8" >/dev/null 2>&1; then
    echo "skipped: localedef cannot make de_DE.UTF-8 (package locales)"
    exit 77
fi
export STREAMFP_REGISTRY=$PWD/runs.db
# p11-kit, which is loaded with libmicrohttpd, calls newlocale, which leaks LOCPATH
comma=(env LOCPATH="$PWD" LC_ALL=de_DE.UTF-8 ASAN_OPTIONS="${ASAN_OPTIONS:-}:detect_leaks=0")
echo "$("${comma[@]}" printf %.1f 0,5) in other programs"
args=(--img-size 32 --data synthetic:40 --tasks 2 --batch 10 --eval-limit 10 --threads 1 --prompt-layers 0-1 --lr 0.00125)
for name in plain comma; do
    locale=(env)
    if [ $name = comma ]; then locale=("${comma[@]}"); fi
    "${locale[@]}" streamfp run --preset paper "${args[@]}" --sigma 0.5 --out $name >/dev/null 2>talk.txt || cat talk.txt
    # everything that depends neither on the time nor on the directory
    sed 's/,"seconds":{.*$//' $name/events.jsonl >$name/events
    tr -d ' ' <$name/result.json | grep -Ev '^"(started|seconds|samples_per_second|batch_seconds|peak_rss_bytes|rate":\{)' >$name/result
done
for file in state.safetensors events result; do cmp "plain/$file" "comma/$file" && echo "$file: the same"; done
grep -c '[0-9]\.[0-9]' comma/events
"${comma[@]}" streamfp run --preset paper --sigma 0,5 --data synthetic:40 --out other 2>&1
for name in plain comma; do
    "${comma[@]}" streamfp run --preset paper "${args[@]}" --sigma 0.25 --resume --out $name 2>&1 | grep -o 'sigma.*'
done
"${comma[@]}" streamfp runs show 1 | grep -o 'average accuracy *[0-9][.,]'
