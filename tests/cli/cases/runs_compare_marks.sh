# The best mean of a column is marked; a run that has not finished is marked and never the best; two options that differ are both named.
result() { # DIR SEED SELECT LR ACCURACY
    write_result "$1" "2025-01-0$2T00:00:00Z" "$2" 'folder:a_b&c' ", \"select\": \"$3\", \"buffer\": \"er\", \"lr\": \"$4\"" "$5"
}
result a 1 random 0.01 0.70
result b 2 random 0.01 0.72
result c 3 random 0.01 0.77
result d 1 streamfp 0.01 0.80
streamfp runs compare a b c d
echo "--- two options differ"
result e 1 random 0.1 null
result f 1 streamfp 0.1 0.85
streamfp runs compare a d e f
echo "--- not finished"
sed -i 's/"finished": true/"finished": false/' d/result.json
streamfp runs compare a b c d | sed -n 3,4p
streamfp runs compare a b c d --json | grep -o '"named_by":[^]]*.\|"not_finished":[^]]*.\|"half":0.08[^}]*'
