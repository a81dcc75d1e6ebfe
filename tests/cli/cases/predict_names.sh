mkfile vit tiny.safetensors 1 3
mkfile image a.png 50 40 3
printf 'cat\ndog\nbird\n' >names.txt
streamfp predict --backbone tiny.safetensors --names names.txt a.png | grep -oE 'cat|dog|bird' | sort | tr '\n' ' '
printf 'cat\ndog\n' >names.txt
streamfp predict --backbone tiny.safetensors --names names.txt a.png
