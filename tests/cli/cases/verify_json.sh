mkfile golden case 7
streamfp-verify --json case | sed -E 's/"error":[0-9.e-]+/"error":E/g'
