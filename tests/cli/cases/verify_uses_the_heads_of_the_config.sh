# the same weights with two heads instead of one are another network: all results after attention differ
mkfile golden case 7
echo '{"backbone": "backbone.safetensors", "num_heads": 2}' >case/config.json
streamfp-verify case | awk '$NF == "ok" || $NF == "FAIL" { print $1, $NF }'
