# a link to a parent directory does not cause endless recursion; special files are reported like unreadable images
mkfile vit tiny.safetensors 1 10
mkdir -p p/a p/a-b
for file in p/a/1.png p/a-b/2.png p/a.png; do mkfile image "$file" 50 40 3; done
ln -s .. p/a/up
ln -s ../a-b p/a/other
mkfifo p/fifo.png
timeout 500 streamfp predict --backbone tiny.safetensors --topk 1 p | cut -f1
