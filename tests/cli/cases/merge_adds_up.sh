# merge: two runs give the predictions of one run over both, whatever their label order; subtract gives the first one back
export STREAMFP_REGISTRY=$PWD/runs.db
mkfile vit tiny.safetensors 1 0
mkfile vit other.safetensors 2 0
mkdir -p a/cat a/dog b/dog b/emu c/cat c/dog c/emu rare/fox
for i in 1 2 3 4 5 6 7 8 9 10 11 12; do
    mkfile image "a/cat/$i.png" 40 30 "$i"
    mkfile image "a/dog/$i.png" 30 40 "$((i + 50))"
    mkfile image "b/emu/$i.png" 30 40 "$((i + 100))"
    mkfile image "b/dog/$((i + 20)).png" 30 40 "$((i + 150))"
done
cp a/cat/* c/cat && cp a/dog/* b/dog/* c/dog && cp b/emu/* c/emu && cp a/cat/1.png rare/fox
run() { streamfp run --backbone tiny.safetensors --tasks 1 --json "$@" 2>&1 >/dev/null | grep -v 'no test set'; }
for name in a b c rare; do run --data folder:$name --out $name.run; done
answers() { streamfp predict --backbone tiny.safetensors --state "$1" c --topk 3 --json | grep -oE '"name":"[a-z]*","probability":0\.[0-9]{4}' >"$2"; }
answers c.run whole
echo "run directories, states and checkpoints"
streamfp merge a.run b.run -o ab.safetensors
streamfp merge --json b.run/checkpoint a.run/state.safetensors --out ba.safetensors
answers ab.safetensors sum && cmp whole sum && echo the same
answers ba.safetensors sum && cmp whole sum && echo the same
echo "subtract"
streamfp merge ab.safetensors --subtract b.run -o first.safetensors
answers a.run one && answers first.safetensors two && cmp one two && echo the same
streamfp merge ab.safetensors rare.run a.run --subtract rare.run --subtract a.run --subtract b.run --json -o again.safetensors
echo "sums only"
streamfp merge ab.safetensors rare.run --sums-only -o shared.safetensors
streamfp merge ab.safetensors rare.run --sums-only --min-count 13 --json -o few.safetensors
streamfp inspect shared.safetensors | grep -E 'classes|kept|recent'
answers shared.safetensors sum && cmp whole sum && echo the same
streamfp merge shared.safetensors a.run -o more.safetensors
echo "a run continues, with more classes and with fewer"
run --data folder:c --init-state shared.safetensors --out d; run --data folder:a --init-state b.run --out e
streamfp inspect d/state.safetensors | grep classes
streamfp inspect e/state.safetensors | grep classes
answers e sum && cmp whole sum && echo the same
echo "refused"
try() { streamfp merge "$@" -o no.safetensors 2>&1 | grep -v "^Try" | sed -E 's/[0-9a-f]{8}/SUM/g'; echo "exit ${PIPESTATUS[0]}"; [ ! -e no.safetensors ] || echo written; }
streamfp run --backbone other.safetensors --data folder:a --out other.run --json >/dev/null 2>&1
streamfp run --backbone tiny.safetensors --img-size 64 --data folder:a --out large.run --json >/dev/null 2>&1
run --data folder:a --out ncm.run --method ncm
run --data folder:a --out ranpac.run --method ranpac
run --data folder:a --out paper.run --preset paper --prompt-layers 0-1 --pool 8
for name in other large ncm ranpac paper nothing; do try a.run $name.run; done
try a.run --subtract b.run
try tiny.safetensors
mkfile flip ab.safetensors flipped.safetensors -2000
try a.run flipped.safetensors
head -c 3000 ab.safetensors >short.safetensors
try short.safetensors
try
try a.run --min-count 3
try a.run --sums-only --min-count 1
streamfp merge a.run
streamfp merge a.run -o no/such/directory
