mkfile vit tiny.safetensors 1 10
mkfile image a.png 50 40 3
streamfp predict --backbone tiny.safetensors --features nowhere/f.npy a.png
