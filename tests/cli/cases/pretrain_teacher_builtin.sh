# "builtin" is accepted as a teacher; its cached outputs are identified by its contents
streamfp inspect --brief builtin >nothing 2>&1 || {
    echo "skipped: this build has no builtin backbone"
    exit 77
}
options=(pretrain --data synthetic:16 --img-size 16 --patch 8 --dim 32 --depth 1 --heads 2 --batch 8 --epochs 1 --teacher builtin)
streamfp "${options[@]}" --views 1 --out o --json 2>err | grep -oE '"finished":true'
before=$(sha256sum o/teacher.cache)
streamfp "${options[@]}" --views 1 --out o --json 2>err | grep -oE '"finished":true'
[ "$before" = "$(sha256sum o/teacher.cache)" ] && echo same outputs
