# closed-form heads start from a state with one class less than the stream, wherever its name is in the order, also on a live stream
export STREAMFP_REGISTRY=$PWD/runs.db
mkfile vit tiny.safetensors 1 0
mkdir -p p/cat p/dog q/bee live
for i in 1 2 3; do
    mkfile image "p/cat/$i.png" 40 30 "$i"
    mkfile image "p/dog/$i.png" 30 40 "$((i + 9))"
    mkfile image "q/bee/$i.png" 30 40 "$((i + 20))"
done
cp -r q/. live && touch live/.end
cp -r p/dog q/
run() { streamfp run --backbone tiny.safetensors --threads 1 "$@" >/dev/null 2>stderr; echo "exit $?"; grep '^streamfp' stderr; }
classes() { streamfp inspect "$1/state.safetensors" | grep -E '^ *classes'; }
for head in ridge slda ncm; do
    run --method $head --data folder:p --out "$head"
    run --method $head --data folder:q --out "$head-more" --init-state "$head"
    classes "$head-more"
    run --method $head --data watch:live --out "$head-live" --init-state "$head"
    classes "$head-live"
    streamfp eval --state "$head-more" --data folder:p --json 2>/dev/null | grep -oE '"(pictures|unknown_classes)":([0-9]+|\[[^]]*\]),"[rs]' # all known
done
run --method ranpac --data folder:p --out ranpac
run --method ranpac --data folder:q --out o --init-state ranpac
