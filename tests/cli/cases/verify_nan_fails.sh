mkfile golden case 7
mkfile nan case/expect.safetensors new grad_prefix_v_1 && mv new case/expect.safetensors
streamfp-verify case | grep -E 'FAIL|hold'
mkfile golden case 7
mkfile nan case/batch.safetensors new x && mv new case/batch.safetensors
streamfp-verify case | grep -cE 'nan .*FAIL'
