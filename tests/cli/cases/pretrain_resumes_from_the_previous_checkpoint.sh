# the previous checkpoint is kept and used if the last one is damaged; changed options are named
small=(pretrain --data synthetic:40 --img-size 16 --patch 8 --dim 32 --depth 1 --heads 2 --batch 8 --threads 1 --checkpoint-every 0 --score-every 0)
train() {
    streamfp "${small[@]}" "$@" 2>&1 >/dev/null
    echo "exit $?"
}
train --epochs 2 --out whole
train --epochs 2 --out cut
ls cut
mkfile flip cut/checkpoint.safetensors damaged -1
cp damaged cut/checkpoint.safetensors
rm cut/model.safetensors
train --epochs 2 --out cut --resume
cmp whole/model.safetensors cut/model.safetensors && echo same model
cmp -s cut/checkpoint.safetensors.old damaged || echo the damaged one was not kept
rm cut/checkpoint.safetensors
train --epochs 2 --out cut
train --epochs 2 --out cut --resume
cmp whole/model.safetensors cut/model.safetensors && echo same model
mkfile flip cut/checkpoint.safetensors.old cut/checkpoint.safetensors -1
cp damaged cut/checkpoint.safetensors.old
train --epochs 2 --out cut --resume 2>&1 | sed -E 's/ is [0-9a-f]{8}, expected [0-9a-f]{8}/ .../g'
train --epochs 2 --out whole --resume --lr 2e-3
train --epochs 2 --out whole --resume --depth 2
train --epochs 2 --out whole --resume --data synthetic:48
mkfile vit teacher.safetensors 1 5
train --epochs 2 --out whole --resume --teacher teacher.safetensors
train --epochs 2 --out whole --resume --lr 0.001 --hidden 128
