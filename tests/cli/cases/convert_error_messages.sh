# no file is written in case of an error
mkfile vit tiny.safetensors 1 10
try() {
    streamfp convert "$@"
    echo "exit $?" >&2
}
try tiny.safetensors
try tiny.safetensors out.safetensors --img-size 33
try tiny.safetensors out.safetensors --dtype f8
try missing.pth out.safetensors
try tiny.safetensors nowhere/out.safetensors
mkdir folder
try tiny.safetensors folder
mkfile raw other.safetensors '{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}' 8
try other.safetensors out.safetensors
printf 'PK\003\004rest' >cut.pth
try cut.pth out.safetensors
try tiny.safetensors tiny.safetensors --dtype f16
ln -s tiny.safetensors link.safetensors
try tiny.safetensors link.safetensors --dtype f16
ls
