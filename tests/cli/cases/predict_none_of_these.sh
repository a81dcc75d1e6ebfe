# an image of random pixels is far from all classes of shapes; states of other heads have no score
export STREAMFP_REGISTRY=$PWD/runs.db
mkfile image noise.png 64 64 3
for method in ridge ncm; do
    streamfp run --data synthetic:400 --method $method --clock off --eval-limit 1 --out $method --json >/dev/null 2>&1 || echo no run
    streamfp predict --state $method --topk 1 noise.png | sed -E 's/[a-z]+\t[0-9.]+ %/CLASS/'
    streamfp predict --state $method --topk 1 --json noise.png |
        sed -E 's/("class":)[0-9],"name":"[a-z]+"/\1C/; s/("(probability|seconds|images_per_second)":)[0-9.e-]+/\1N/g; s/("unknown":0[.]99)[0-9]*/\1.../'
done
