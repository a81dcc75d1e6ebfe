# a FIFO or a device in place of a list is reported at once, without waiting
mkfile vit tiny.safetensors 1 3
mkfile image a.png 20 20 1
printf 'x\ny\nz\n' >names.txt
mkfifo fifo fifo.csv
try() {
    timeout 20 streamfp "$@" 2>&1 >/dev/null | sed -n 1p # head would exit before the program has written all its messages
    echo "exit ${PIPESTATUS[0]}"
}
for path in fifo /dev/zero; do
    try run --config "$path"
    try inspect "$path"
    try predict --backbone tiny.safetensors --names "$path" a.png
    try predict --backbone tiny.safetensors --eval "$path"
done
try predict --backbone tiny.safetensors fifo.csv
# a pipe of the shell has a writer and is accepted
timeout 20 streamfp predict --backbone tiny.safetensors --names <(cat names.txt) --topk 1 a.png | wc -l
cat names.txt | timeout 20 streamfp predict --backbone tiny.safetensors --names /dev/stdin --topk 1 a.png | wc -l
# a file as standard input is accepted
timeout 20 streamfp predict --backbone tiny.safetensors --names /dev/stdin --topk 1 a.png <names.txt | wc -l
