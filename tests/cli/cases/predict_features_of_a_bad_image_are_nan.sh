mkfile vit tiny.safetensors 1 0
mkfile image a.png 50 40 3
echo bad >b.jpg
mkfile image c.png 50 40 4
streamfp predict --backbone tiny.safetensors --features f.npy a.png b.jpg c.png
echo "exit $?"
streamfp inspect --stats f.npy | tail -1 | sed -E 's/ +[-0-9.e]+ +[-0-9.e]+ +[-0-9.e]+ +([0-9]+)$/ nan \1/'
ls
