# --json reports the file of each row of features, also for a backbone without classes, and why a row is NaN
mkfile vit tiny.safetensors 1 0
mkfile image a.png 50 40 3
echo bad >b.jpg
mkfile image c.png 50 40 4
streamfp predict --backbone tiny.safetensors --features f.npy --json a.png b.jpg c.png >out
echo "exit $?"
sed 's/,"seconds".*//' out
