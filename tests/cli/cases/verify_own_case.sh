# a case of the backbone alone: what is there is checked, what the learner misses is named, and it does not hold
mkfile golden case 7
streamfp-verify --threads 2 case | sed -E 's/ [0-9.]+e[-+][0-9]+  (  1e-0[34])/ERROR\1/'
echo "exit ${PIPESTATUS[0]}"
