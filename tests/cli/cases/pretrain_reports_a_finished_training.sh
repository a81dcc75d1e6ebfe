train() { streamfp pretrain --data synthetic:40 --img-size 16 --patch 8 --dim 32 --depth 1 --heads 2 --batch 8 --threads 1 --out out "$@" 2>&1 >/dev/null; }
train --epochs 1
train --epochs 1 --resume
echo "exit $?"
train --epochs 2 --resume
