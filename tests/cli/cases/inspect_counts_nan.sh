mkfile vit tiny.safetensors 1 10
mkfile nan tiny.safetensors nan.safetensors norm.bias
streamfp inspect --stats nan.safetensors | awk '$1 == "norm.bias" || $1 == "head.bias" { print $1, $NF }'
