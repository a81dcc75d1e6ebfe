# a case of the backbone alone: its tensors are checked, the missing tensors of the learner are named, and it fails
mkfile golden case 7
streamfp-verify --threads 2 case | sed -E 's/ [0-9.]+e[-+][0-9]+  (  1e-0[34])/ERROR\1/'
echo "exit ${PIPESTATUS[0]}"
