mkfile vit tiny.safetensors 1 3
mkfile image a.png 50 40 3
mkfile image 'odd "name".png' 50 40 4
echo bad >bad.jpg
streamfp predict --backbone tiny.safetensors --topk 1 --json a.png bad.jpg 'odd "name".png' 2>/dev/null
