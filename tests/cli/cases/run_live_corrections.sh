# samples of a live run are corrected and forgotten, and its classes renamed, merged and removed, as if it had always been so
export STREAMFP_REGISTRY=$PWD/runs.db
mkfile vit tiny.safetensors 1 0
mkdir -p in/cat in/dog in/owl once/cat once/dog
for i in 1 2 3 4; do
    mkfile image "in/cat/$i.png" 16 16 "$i"
    mkfile image "in/dog/$i.png" 16 16 "1$i"
    mkfile image "in/owl/$i.png" 16 16 "2$i"
done
mkfile image in/who.png 16 16 31
touch in/.end
args=(run --backbone tiny.safetensors --data watch:in --method slda --batch 4 --threads 1 --out out)
streamfp "${args[@]}" 2>/dev/null | grep -E '^  (offered|standing)'
streamfp correct out cat/1.png dog
streamfp correct out who.png cat
streamfp forget out dog/4.png
streamfp classes out rename owl bird
streamfp classes out merge bird dog
cp in/owl/1.png . # a path of the same bytes names the sample, too
streamfp correct out ./1.png cat --json
streamfp classes out remove nothing
streamfp classes out rename cat dog
streamfp correct out cat/9.png dog
streamfp correct in cat/1.png dog
streamfp forget out dog/4.png
grep -c dog/4 out/samples.db
mv in/cat/3.png in/dog/moved.png
printf 'cat/4.png,dog\n' >in/labels.csv
mkfile image in/owl/5.png 16 16 25 # a label with the old name of a class
streamfp "${args[@]}" --resume 2>/dev/null | grep -E '^  (offered|standing|corrected)'
# one run that sees the final labels
put() { # CLASS FILE...
    local file
    for file in "${@:2}"; do cp "in/$file" "once/$1/${file//\//-}"; done
}
put cat who.png cat/2.png owl/1.png
put dog cat/1.png cat/4.png dog/1.png dog/2.png dog/3.png dog/moved.png owl/2.png owl/3.png owl/4.png owl/5.png
streamfp run --backbone tiny.safetensors --data folder:once --tasks free --method slda --batch 4 --threads 1 --out whole >/dev/null 2>&1
answers() { streamfp predict --backbone tiny.safetensors --state "$1" --json in/*/*.png in/who.png 2>/dev/null | grep -oE '"name":"[a-z]*","probability":[0-9.e-]{5}'; }
diff <(answers out) <(answers whole) && echo "as one run"
streamfp classes out remove dog
