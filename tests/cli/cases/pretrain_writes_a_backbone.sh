mkfile vit teacher.safetensors 1 5
streamfp pretrain --data synthetic:200 --teacher teacher.safetensors --views 1 --img-size 16 --patch 8 --dim 48 --depth 2 --heads 3 --batch 16 \
    --epochs 3 --out o 2>err
ls o
streamfp inspect o/model.safetensors | grep -E '^(recognised|parameters|head)'
python3 -c 'import json
c = json.load(open("o/config.json"))
print(c["num_heads"], c["pretraining"]["finished"], c["pretraining"]["pictures"], len(c["class_names"]))
print([json.loads(l)["step"] for l in open("o/log.jsonl")][-1])'
grep -c '<svg' o/report.html
# a teacher alone is enough, without labels and with another width
mkdir -p flat/all && for i in $(seq 24); do mkfile image "flat/all/$i.png" 20 20 "$i"; done
long=$(printf './%.0s' $(seq 200))
streamfp pretrain --data "folder:${long}flat" --teacher teacher.safetensors --img-size 16 --patch 8 --dim 24 --depth 1 --heads 2 --batch 8 --epochs 1 --dtype f32 \
    --out p --json 2>err | grep -oE '"finished":true|"label":null|"ncm":null'
python3 -c 'import json; print(json.load(open("p/config.json"))["pretraining"]["command"].count("./"))'
mkfile image a.png 50 40 3
streamfp predict --backbone o/model.safetensors --topk 1 a.png | cut -f1
