# labels equal to the program's predictions: all correct; after changing the last label: one wrong
mkfile vit tiny.safetensors 1 10
for i in 1 2 3 4; do
    mkfile image "$i.png" 60 50 "$i"
    echo "$i.png,$(streamfp predict --backbone tiny.safetensors --topk 1 "$i.png" | cut -f2)"
done >labels.csv
streamfp predict --backbone tiny.safetensors --eval labels.csv --json
streamfp predict --backbone tiny.safetensors --eval labels.csv
last=$(sed -n 's/^4.png,//p' labels.csv)
sed -i "s/^4.png,.*/4.png,$(((last + 1) % 10))/" labels.csv
streamfp predict --backbone tiny.safetensors --eval labels.csv --json | grep -oE '"top1_count":[0-9]+'
