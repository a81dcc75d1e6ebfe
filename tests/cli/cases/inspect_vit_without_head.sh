mkfile vit tiny.safetensors 1 0
streamfp inspect --brief tiny.safetensors
