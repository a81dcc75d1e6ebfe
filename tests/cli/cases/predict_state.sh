# predictions of a learned state, with class names; the same number of correct ones as with eval
export STREAMFP_REGISTRY=$PWD/runs.db
mkfile vit tiny.safetensors 1 10
mkdir -p p/cat p/dog
for i in 1 2 3 4 5 6; do
    mkfile image "p/cat/$i.png" 40 30 "$i"
    mkfile image "p/dog/$i.png" 30 40 "$((i + 9))"
done
mkfile image new.png 50 50 3
for how in '--preset paper --attune off --batch 6' '--preset best' '--method ncm' '--method ridge --taps 2' '--method ranpac'; do
    out=${how##* }
    read -ra words <<<"$how"
    streamfp run --backbone tiny.safetensors --data folder:p "${words[@]}" --out "$out" --json >/dev/null 2>&1 || echo no run
    streamfp predict --backbone tiny.safetensors --state "$out" --topk 5 p/dog/1.png new.png | sed -E 's/[0-9.]+ %/N %/g; s/\t(cat|dog)\tN %\t(cat|dog)\tN %/: two classes/'
    for c in cat dog; do for i in 1 2 3 4 5 6; do echo "p/$c/$i.png,$c"; done; done >labels.csv
    counted=$(streamfp predict --backbone tiny.safetensors --state "$out/state.safetensors" --eval labels.csv --json | grep -oE '"top1_count":[0-9]+' | cut -d: -f2)
    right=$(streamfp eval --backbone tiny.safetensors --state "$out" --data folder:p --json | grep -oE '"right":[0-9]+' | cut -d: -f2)
    [ "$counted" = "$right" ] || echo "predict counts $counted, eval $right"
done
streamfp predict --backbone tiny.safetensors --state best --json --topk 1 new.png | sed -E 's/:[0-9.]+(e-[0-9]+)?/:N/g; s/cat|dog/NAME/'
