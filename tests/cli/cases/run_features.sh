# A run on features of another model: clock, tasks, report, eval and predict work as on images; settings of a backbone are
# refused.
mkfile vit tiny.safetensors 1 0
mkdir -p train/{a,b} test/{a,b}
for i in {10..24}; do
    for class in a b; do
        mkfile image "train/$class/$i.png" 40 40 "$i"
        mkfile image "test/$class/$i.png" 40 40 "$((i + 100))"
    done
done
streamfp predict --backbone tiny.safetensors --features x.npy --taps 2 --tap-mean on train
streamfp predict --backbone tiny.safetensors --features t.npy --taps 2 --tap-mean on test
for i in {1..30}; do echo "class $((i % 4))"; done | tee x.labels.txt >t.labels.txt
run=(run --data features:x.npy --test features:t.npy --batch 3 --tasks 2 --threads 1)
for i in {1..10}; do echo 0.05; done >costs
for method in ncm slda ridge ranpac; do
    streamfp "${run[@]}" --method $method --rate 30 --costs costs --out $method --json | grep -oE '"(finished|closed_form)":[a-z0-9]+'
done
ls ridge
grep -c 'data:image' ridge/report.html
streamfp "${run[@]}" --method ridge --rate 30 --costs costs --out ridge --resume --json | grep -o '"finished":true'
streamfp eval --state ridge --data features:t.npy | grep -oE 'of [0-9]+ images'
streamfp predict --state ridge t.npy | cut -f 1 | head -2
streamfp data describe features:x.npy | grep -E '^(images|classes|width)'
echo refused >&2
streamfp "${run[@]}" --preset paper
for option in backbone=tiny.safetensors img-size=32 resize=crop normalise=half taps=2 tap-mean=on cache=c precision=bf16; do
    streamfp "${run[@]}" --method ncm "--${option%=*}" "${option#*=}"
done
streamfp run --data folder:train --backbone tiny.safetensors --test features:t.npy --method ncm
streamfp run --data features:x.npy --test folder:train --method ncm
streamfp eval --state ridge --data folder:train
streamfp eval --state ridge --backbone tiny.safetensors --data features:t.npy
streamfp predict --state ridge train/a/10.png
streamfp pretrain --data features:x.npy --out p
streamfp data describe features:x.npy --sheet s.png
cp x.npy y.npy
streamfp run --data features:y.npy --method ncm
head -n 4 x.labels.txt >y.labels.txt
streamfp run --data features:y.npy --method ncm
cp x.labels.txt y.labels.txt
head -c 500 x.npy >y.npy
streamfp run --data features:y.npy --method ncm
cp tiny.safetensors y.npy
streamfp run --data features:y.npy --method ncm
streamfp run --data features:x.labels.txt --method ncm
echo bad >test/a/10.png
streamfp predict --backbone tiny.safetensors --features t.npy --taps 2 --tap-mean on test
streamfp eval --state ridge --data features:t.npy | grep skipped
