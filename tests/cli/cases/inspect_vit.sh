mkfile vit tiny.safetensors 1 10
streamfp inspect tiny.safetensors
