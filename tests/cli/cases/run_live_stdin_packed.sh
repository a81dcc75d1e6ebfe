# data after a compressed tar must be compressed alike, or is reported; earlier samples are processed
export STREAMFP_REGISTRY=$PWD/runs.db
mkfile vit tiny.safetensors 1 0
mkdir in
for i in 1 2 3 4; do
    mkfile image "in/a$i.png" 20 20 "$i"
    printf cat >"in/a$i.cls"
done
tar -C in -cf first.tar a1.png a1.cls a2.png a2.cls
tar -C in -cf second.tar a3.png a3.cls a4.png a4.cls
gzip -k first.tar second.tar
try() { # OUT: standard input is the stream
    streamfp run --backbone tiny.safetensors --method ncm --data stdin --batch 2 --threads 1 --out "$1" 2>&1 >stdout |
        sed -E 's/byte [0-9]+/byte N/'
    echo "exit ${PIPESTATUS[0]}"
    grep -o '"finished": [a-z]*' "$1/result.json"
    tr -d ' \n' <"$1/result.json" | grep -o '"offered":[0-9]*' | head -1
}
cat first.tar.gz second.tar.gz | try both
{ cat first.tar.gz && head -c 3000 /dev/zero; } | try padded
cat first.tar.gz second.tar | try mixed
