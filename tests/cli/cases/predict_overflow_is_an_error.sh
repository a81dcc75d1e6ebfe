# Weights that overflow give scores that are not numbers. They are reported and never ranked.
mkfile vit tiny.safetensors 1 10
mkfile image a.png 50 40 3
for name in head.weight norm.weight blocks.0.mlp.fc1.weight; do
    mkfile huge tiny.safetensors huge.safetensors $name
    streamfp predict --backbone huge.safetensors a.png
    echo "exit $?"
    streamfp predict --backbone huge.safetensors a.png --features f.npy
    echo "exit $?"
done
ls
