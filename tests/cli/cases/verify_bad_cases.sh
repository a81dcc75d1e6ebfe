try() {
    streamfp-verify case
    echo "exit $?" >&2
    mkfile golden case 7
}
streamfp-verify nothing
mkfile golden case 7
rm case/config.json
try
echo '{"backbone": 3}' >case/config.json
try
echo '{"backbone": ' >case/config.json
try
echo '{"backbone": "backbone.safetensors", "depth": 3}' >case/config.json
try
rm case/state0.safetensors
try
mkfile raw case/batch.safetensors '{"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}' 8
try
mkfile flip case/expect.safetensors new 3 && mv new case/expect.safetensors
try
streamfp-verify case/config.json
