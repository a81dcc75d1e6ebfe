mkfile raw x.safetensors '{"a\u001b[2J":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}' 1
streamfp inspect x.safetensors | tail -1
