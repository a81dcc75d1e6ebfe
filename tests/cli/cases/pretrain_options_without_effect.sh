try() {
    streamfp pretrain --data synthetic:40 --out o --img-size 16 --patch 8 --dim 32 --depth 1 --heads 2 --batch 8 "$@" 2>&1 >/dev/null | grep -v Try
    echo "exit ${PIPESTATUS[0]}"
}
try --epochs 3 --seconds 5
for option in teacher-cache=x teacher-grid=4 views=3 weight-class=2 weight-patch=0 weight-logits=2 temperature=2; do
    try "--$option" --epochs 1
done
mkfile vit teacher.safetensors 1 5
try --teacher teacher.safetensors --weight-logits 0 --temperature 2
try --teacher teacher.safetensors --weight-label 0 --smoothing 0.3
ls
# an option with its default value is accepted
try --epochs 1 --views 2 --weight-patch 1.0
