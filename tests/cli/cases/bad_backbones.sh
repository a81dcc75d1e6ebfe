# error messages of predict for incomplete weights: file, tensor, found, expected
mkfile image a.png 40 40 1
try() {
    streamfp predict --backbone "$1" a.png
    echo "exit $?" >&2
}
mkfile vit missing.safetensors 1 10 drop=blocks.1.attn.qkv.weight
try missing.safetensors
mkfile vit renamed.safetensors 1 10 rename=norm.bias
try renamed.safetensors
mkfile vit shape.safetensors 1 10 reshape=blocks.0.mlp.fc2.bias
try shape.safetensors
mkfile vit head.safetensors 1 10 reshape=head.bias
try head.safetensors
mkfile vit headless.safetensors 1 0
try headless.safetensors
mkfile raw other.safetensors '{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}' 8
try other.safetensors
# files that are not weights
try a.png
echo 'import torch' >text.pth
try text.pth
echo 'text' >short.pth
try short.pth
printf '\xff\xd8\xff\xe0........' >photo.safetensors
try photo.safetensors
printf '\1\2\3\4\5\6\7\10\11' >other.bin
try other.bin
streamfp inspect a.png
streamfp convert text.pth out.safetensors
echo "exit $?" >&2
