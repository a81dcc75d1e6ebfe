mkfile vit tiny.safetensors 1 10
echo 'no image' >a.jpg
mkfile image b.png 40 40 1
streamfp predict --backbone tiny.safetensors --topk 1 --strict a.jpg b.png
