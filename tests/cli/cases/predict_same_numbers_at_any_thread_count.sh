mkfile vit tiny.safetensors 1 10
mkdir p
for ((i = 0; i < 9; i++)); do mkfile image "p/$i.png" 60 50 "$i"; done
streamfp predict --backbone tiny.safetensors --threads 1 --features one.npy p >one.txt
streamfp predict --backbone tiny.safetensors --threads 3 --features three.npy p >three.txt
cmp one.npy three.npy && diff one.txt three.txt && wc -l <one.txt
