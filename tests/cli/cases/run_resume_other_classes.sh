# a run is not resumed if its classes were renamed: every label would have shifted
export STREAMFP_REGISTRY=$PWD/runs.db
mkfile vit tiny.safetensors 1 0
mkdir -p rg/arrow rg/disc rg/triangle
for i in 1 2 3; do
    for c in arrow disc triangle; do mkfile image "rg/$c/$i.png" 30 40 "$((i + 9 * ${#c}))"; done
done
run() { streamfp run --backbone tiny.safetensors --json --batch 2 --tasks free --data folder:rg "$@" 2>&1 >/dev/null | grep -v 'no test set'; echo "exit ${PIPESTATUS[0]}"; }
learner() { run --preset paper --attune off --pool 8 --prompt-length 4 --prompt-layers 0-1 --out learner "$@"; }
head() { run --method ncm --out head "$@"; }
learner
head
mkdir before && cp -r learner head before
mv rg/triangle rg/aaa
learner --resume
head --resume
mv rg/aaa rg/zebra
learner --resume
diff -r learner before/learner && diff -r head before/head && echo as before
mv rg/zebra rg/triangle
learner --resume
head --resume
