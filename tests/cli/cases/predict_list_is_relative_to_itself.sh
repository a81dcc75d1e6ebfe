mkfile vit tiny.safetensors 1 10
mkdir -p lists/p
mkfile image 'lists/p/a, b.png' 50 40 3
mkfile image lists/p/c.png 50 40 3
printf 'file,label\r\n"p/a, b.png",3\r\n\r\n# a comment\np/c.png,4\n' >lists/labels.csv
printf 'p/c.png\n' >lists/plain.txt
streamfp predict --backbone tiny.safetensors --topk 1 lists/labels.csv lists/plain.txt | cut -f1
