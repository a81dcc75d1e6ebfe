# a FIFO or a device in the place of a list is told at once, and waited for by nobody
mkfile vit tiny.safetensors 1 3
mkfile image a.png 20 20 1
printf 'x\ny\nz\n' >names.txt
mkfifo fifo fifo.csv
try() {
    timeout 20 streamfp "$@" 2>&1 >/dev/null | sed -n 1p # head would end before the program has said all
    echo "exit ${PIPESTATUS[0]}"
}
for path in fifo /dev/zero; do
    try run --config "$path"
    try inspect "$path"
    try predict --backbone tiny.safetensors --names "$path" a.png
    try predict --backbone tiny.safetensors --eval "$path"
done
try predict --backbone tiny.safetensors fifo.csv
# but a pipe that a shell hands over has its writer
timeout 20 streamfp predict --backbone tiny.safetensors --names <(cat names.txt) --topk 1 a.png | wc -l
cat names.txt | timeout 20 streamfp predict --backbone tiny.safetensors --names /dev/stdin --topk 1 a.png | wc -l
# a file that comes by standard input is one
timeout 20 streamfp predict --backbone tiny.safetensors --names /dev/stdin --topk 1 a.png <names.txt | wc -l
