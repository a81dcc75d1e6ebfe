# each file must fail with a message that names the file and the fault, and with exit status 1
mkfile vit good.safetensors 1 10
try() {
    streamfp inspect "$1"
    echo "exit $?" >&2
}
streamfp inspect missing.safetensors
: >empty.safetensors
try empty.safetensors
head -c 5 good.safetensors >five-bytes.safetensors
try five-bytes.safetensors
head -c 1000 good.safetensors >cut-in-header.safetensors
try cut-in-header.safetensors
head -c 100000 good.safetensors >cut-in-data.safetensors
try cut-in-data.safetensors
mkfile length giant-header.safetensors 1073741824
try giant-header.safetensors
mkfile length negative-header.safetensors 18446744073709551615
try negative-header.safetensors
mkfile flip good.safetensors flipped-brace.safetensors 8
try flipped-brace.safetensors
mkfile raw overlap.safetensors '{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}}' 12
try overlap.safetensors
mkfile raw huge-shape.safetensors '{"a":{"dtype":"F32","shape":[9223372036854775807,9223372036854775807],"data_offsets":[0,8]}}' 8
try huge-shape.safetensors
mkfile raw negative-shape.safetensors '{"a":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}}' 8
try negative-shape.safetensors
mkfile raw short-data.safetensors '{"a":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}}' 8
try short-data.safetensors
mkfile raw wrong-count.safetensors '{"a":{"dtype":"F32","shape":[4],"data_offsets":[0,8]}}' 8
try wrong-count.safetensors
mkfile raw dtype.safetensors '{"a":{"dtype":"Q4","shape":[4],"data_offsets":[0,8]}}' 8
try dtype.safetensors
mkfile raw twice.safetensors '{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}}' 2
try twice.safetensors
