# a sample that is forgotten is neither corrected nor learned, also if the requests arrive together or its label comes later
export STREAMFP_REGISTRY=$PWD/runs.db
mkfile vit tiny.safetensors 1 0
mkdir -p in/cat in/dog
for i in 1 2 3 4; do
    mkfile image "in/cat/$i.png" 16 16 "$i"
    mkfile image "in/dog/$i.png" 16 16 "1$i"
done
mkfile image in/who.png 16 16 31
touch in/.end
args=(run --backbone tiny.safetensors --method slda --batch 4 --threads 1)
standings() { grep -E '^  (offered|standing)'; }
sql() { # FILE SQL
    python3 -c 'import sqlite3, sys
with sqlite3.connect(sys.argv[1], timeout=10) as db:
    for row in db.execute(sys.argv[2]): print(*row)' "$@"
}
streamfp "${args[@]}" --data watch:in --out out 2>/dev/null | standings
sql out/samples.db "INSERT INTO request(name, file, label) VALUES('who.png', NULL, 'cat'), ('who.png', NULL, NULL),
    ('cat/1.png', NULL, NULL), ('cat/1.png', NULL, 'dog'), ('cat/1.png', NULL, 'cat')"
streamfp "${args[@]}" --data watch:in --out out --resume 2>/dev/null | standings
sql out/samples.db 'SELECT number, status, answer FROM request'
# the same as a run that never saw them
mkdir -p once
cp -r in/cat in/dog once/
rm once/cat/1.png
streamfp run --backbone tiny.safetensors --data folder:once --tasks free --method slda --batch 4 --threads 1 --out whole >/dev/null 2>&1
answers() { streamfp predict --backbone tiny.safetensors --state "$1" --json in/*/*.png in/who.png 2>/dev/null | grep -oE '"name":"[a-z]*","probability":[0-9.e-]{5}'; }
diff <(answers out) <(answers whole) && echo "as one run"

# an image of a stream that is not kept there
cp in/who.png a.png
cp in/dog/4.png b.png
printf cat | tee a.cls >b.cls
mkfifo pipe
streamfp "${args[@]}" --data stdin --out live <pipe >stdout 2>stderr &
exec 3>pipe
tar -cf - a.png b.png b.cls >&3 # whether a label follows is known at the next image
predicted() { [ "$(sql live/samples.db 'SELECT count(predicted) FROM sample' 2>/dev/null)" = 1 ]; }
wait_until predicted
streamfp forget live a
tar -cf - a.cls >&3
exec 3>&-
wait $!
standings <stdout
grep label stderr
