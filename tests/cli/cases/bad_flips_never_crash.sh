# Plain builds only
# a flipped byte of the header causes a message and exit status 1, or the file is still valid; never a crash
mkfile vit good.safetensors 1 10
size=$(od -An -tu8 -N8 good.safetensors | tr -d ' ')
for ((offset = 0; offset < size + 8; offset += 37)); do
    mkfile flip good.safetensors bad.safetensors "$offset"
    streamfp inspect --brief bad.safetensors >out 2>err
    code=$?
    if [ $code -gt 1 ]; then echo "offset $offset: exit $code"; fi
    if [ $code -eq 1 ] && ! grep -q 'bad.safetensors' err; then echo "offset $offset: $(cat err)"; fi
done
