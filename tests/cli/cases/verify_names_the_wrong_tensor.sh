# one number of one tensor is wrong: only that tensor fails (tests/golden/perturb tests all tensors)
need_shared
mkdir real
cp "$SHARED"/golden/plain/* real
chmod -R u+w real
mkfile nan real/expect.safetensors new grad_replay.prompt.e_a_3 && mv new real/expect.safetensors
streamfp-verify real | awk '$NF == "FAIL" || $NF == "hold"{ print $1, $NF }'
echo "exit ${PIPESTATUS[0]}"
