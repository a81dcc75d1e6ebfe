mkfile vit tiny.safetensors 1 10
mkdir -p p/b p/a
for file in p/z.png p/b/2.png p/b/1.png p/a/x.png; do mkfile image "$file" 50 40 3; done
echo ignored >p/readme.md
streamfp predict --backbone tiny.safetensors --topk 1 p p/z.png | cut -f1
