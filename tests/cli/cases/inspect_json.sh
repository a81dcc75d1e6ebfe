mkfile vit tiny.safetensors 1 10
streamfp inspect --brief --json tiny.safetensors
