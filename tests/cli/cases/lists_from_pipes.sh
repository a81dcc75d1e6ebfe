# a pipe of the shell, which has a writer, and a file as standard input are accepted
mkfile vit tiny.safetensors 1 3
mkfile image a.png 20 20 1
printf 'x\ny\nz\n' >names.txt
timeout 500 streamfp predict --backbone tiny.safetensors --names <(cat names.txt) --topk 1 a.png | wc -l
cat names.txt | timeout 500 streamfp predict --backbone tiny.safetensors --names /dev/stdin --topk 1 a.png | wc -l
timeout 500 streamfp predict --backbone tiny.safetensors --names /dev/stdin --topk 1 a.png <names.txt | wc -l
