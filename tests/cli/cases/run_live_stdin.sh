# a tar on standard input: classes are added; an unlabelled image is predicted, and learned from when its label arrives
export STREAMFP_REGISTRY=$PWD/runs.db
table() { grep -E '^  (offered|unlabelled:)' stdout; } # the number of trained samples depends on timing
mkdir in
sample() { # KEY SEED [LABEL]
    mkfile image "in/$1.png" 32 32 "$2"
    if [ $# -gt 2 ]; then printf '%s' "$3" >"in/$1.cls"; fi
}
for i in 1 2 3 4 5 6; do sample "a$i" "$i" cat; done
for i in 1 2 3 4; do sample "b$i" "3$i" dog; done
sample u1 21
sample u2 22
mkdir later
printf dog >later/u1.cls
tar -C in -cf first.tar a1.png a1.cls a2.png a2.cls a3.png a3.cls a4.png a4.cls u1.png a5.png a5.cls u2.png b1.png b1.cls \
    -C ../later u1.cls -C ../in a6.png a6.cls
args=(run --data stdin --batch 4 --threads 1 --out out)
streamfp "${args[@]}" <first.tar >stdout 2>stderr
echo "exit $?"
grep -v 'stands in' stderr
table
sed 's/"t":[0-9]*,//; s/,"class":.*,"probability":.*//' out/predictions.jsonl
grep '"class_names"' out/result.json
wc -l <out/events.jsonl
# another stream, the same learner
tar -C in -cf second.tar b2.png b2.cls b3.png b3.cls b4.png b4.cls
streamfp "${args[@]}" --resume <second.tar >stdout 2>stderr
echo "exit $?"
grep -v 'stands in' stderr
table
# a broken stream is reported: its state is kept, the run is not finished and can be resumed
broken=(run --data stdin --batch 4 --threads 1 --out broken)
finished() { streamfp runs | grep -c "$PWD/broken${1:-}\$"; }
try() { # FILE OPTIONS...: prints the messages
    local from=$1
    shift
    streamfp "$@" <"$from" 2>&1 >stdout | grep -v 'stands in'
    echo "exit ${PIPESTATUS[0]}"
}
head -c 7000 second.tar >cut.tar
try cut.tar "${broken[@]}"
grep '"finished"' broken/result.json
rm -f broken/checkpoint.old # exists if the run was slow
ls broken
finished ' (not finished)'
try cut.tar "${broken[@]}"
echo "no data: nothing is changed"
cp -r broken before
for from in /dev/null in/a1.png; do try $from "${broken[@]}" --resume; done
diff -r broken before
finished ' (not finished)'
try second.tar "${broken[@]}" --resume
finished
# truncated after an entry: complete samples are processed, but the stream has not ended
head -c 4096 second.tar >short.tar
try short.tar run --data stdin --method ncm --batch 4 --threads 1 --out short
grep '"finished"' short/result.json
# several archives, one after the other
cat first.tar second.tar | streamfp run --data stdin --batch 4 --threads 1 --out both 2>/dev/null | grep '^  offered '
# broken from the start: no directory is created, a finished run is not replaced, and nothing is registered
head -c 10240 /dev/zero >nothing.tar # complete, but without entries
for from in /dev/null in/a1.png nothing.tar; do try $from run --data stdin --threads 1 --out none/at/all; done
rm nothing.tar
mkfile vit tiny.safetensors 1 0
streamfp run --backbone tiny.safetensors --data synthetic:40 --tasks 2 --method ncm --threads 1 --out ended >/dev/null 2>&1
rm -r before
cp -r ended before
try in/a1.png run --data stdin --threads 1 --out ended
diff -r ended before
streamfp runs | grep -c "$PWD"
# options that a live stream cannot have
for bad in '--tasks 5' '--clock virtual --rate 10' '--clock paper --rate 10' '--rate 10' '--costs nowhere' '--label-queue -1'; do
    # shellcheck disable=SC2086  # two words
    streamfp run --data stdin --threads 1 --out none $bad </dev/null 2>&1 | grep -v 'stands in'
done
ls
