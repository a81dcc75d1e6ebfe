mkfile vit tiny.safetensors 1 10
mkfile image a.png 40 40 1
for config in '{"num_heads": "many"}' '{"num_heads": 7}' '{"mean": [1, 2]}' '{"num_heads": 1'; do
    echo "$config" >config.json
    streamfp predict --backbone tiny.safetensors a.png
    echo "exit $?" >&2
done
