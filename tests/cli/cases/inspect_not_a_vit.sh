mkfile raw other.safetensors '{"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},"__metadata__":{"who":"me"}}' 24
streamfp inspect --stats other.safetensors
