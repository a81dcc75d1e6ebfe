mkfile golden case 7
mkfile golden other 8
cp other/expect.safetensors case/expect.safetensors
streamfp-verify case | awk '$NF == "FAIL" || $NF == "hold"{ print $1, $NF }'
echo "exit ${PIPESTATUS[0]}"
