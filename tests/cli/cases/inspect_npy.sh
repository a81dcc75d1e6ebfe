mkfile vit tiny.safetensors 1 10
mkfile image a.png 40 40 1
streamfp predict --backbone tiny.safetensors --features f.npy --topk 1 a.png >/dev/null
streamfp inspect f.npy
