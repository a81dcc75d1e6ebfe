mkfile vit tiny.safetensors 1 10
for i in 1 2 3 4 5 6; do mkfile picture $i.png 40 40 $i; done
streamfp predict --backbone tiny.safetensors --features f.npy --topk 1 ./*.png >/dev/null
streamfp select --method kcenter --features f.npy --ratio 0.5 | wc -l
# an array of a file with many, by name
streamfp select --method kcenter --features tiny.safetensors:head.weight --ratio 0.5 --json | tr -d '0-9, ' 
printf '1;2\t3\r\n\n  4,  5 ; 6\nnan 7 8\n1e3 -2 inf\n' >odd.txt
streamfp select --method kcenter --features odd.txt --ratio 0.75 --json
