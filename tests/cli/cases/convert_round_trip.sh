# the converted file is the same network: with 32 bits byte by byte, and complete without other files
mkfile vit tiny.safetensors 1 10
echo '{"num_heads": 2, "mean": [0.5, 0.5, 0.5], "std": [0.25, 0.25, 0.25], "activation": "quick_gelu", "ln_eps": 1e-5}' >tiny.json
mkfile image a.png 40 40 1
feature() {
    streamfp predict --backbone "$1" --features "$2" --topk 1 a.png >/dev/null
}
feature tiny.safetensors want.npy
mkdir elsewhere
streamfp convert tiny.safetensors elsewhere/same.safetensors
feature elsewhere/same.safetensors got.npy
cmp want.npy got.npy && echo "same features"
streamfp inspect --brief elsewhere/same.safetensors | grep -E "recognised|architecture|ln_eps|activation|mean"
streamfp convert elsewhere/same.safetensors elsewhere/again.safetensors --json
cmp <(tail -c 300000 elsewhere/same.safetensors) <(tail -c 300000 elsewhere/again.safetensors) && echo "same bytes"
streamfp convert tiny.safetensors half.safetensors --dtype f16
[ $(stat -c %s half.safetensors) -lt 170000 ] && echo "half the size"
streamfp convert half.safetensors larger.safetensors --img-size 48
streamfp inspect --brief larger.safetensors | grep architecture
streamfp inspect --brief --img-size 24 tiny.safetensors | grep -E "recognised|tokens"
