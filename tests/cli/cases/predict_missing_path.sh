mkfile vit tiny.safetensors 1 10
mkdir empty
streamfp predict --backbone tiny.safetensors nothing.png
echo "exit $?" >&2
streamfp predict --backbone tiny.safetensors empty
