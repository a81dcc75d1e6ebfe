# The best mean of a column is marked; a run that has not finished is marked and never the best; two options that differ are both named.
result() { # DIR SEED SELECT LR ACCURACY
    mkdir "$1"
    cat >"$1/result.json" <<END
{"version": "0.1.0", "started": "2025-01-0$2T00:00:00Z", "finished": true, "seed": $2,
 "machine": {"cpu": "a processor", "threads": 2, "kernels": "avx2", "gemm": "oneDNN"},
 "config": {"data": "folder:a_b&c", "select": "$3", "buffer": "er", "lr": "$4", "seed": "$2"},
 "task_names": ["first", "second"], "class_names": ["cat", "dog"], "tasks_done": 2,
 "accuracy_matrix": [[0.9, null], [0.7, $5]], "average_accuracy": $5, "forgetting": 0.2, "backward_transfer": -0.2,
 "prequential_accuracy": null, "per_class": [0.5, 1],
 "samples": {"offered": 400, "scored": 400, "trained": 200, "replayed": 190, "dropped": 0},
 "lambda": null, "cs": null, "lag": {"mean": 0, "max": 0, "last": 0}, "coverage": 1,
 "seconds": {"decode": 0.5, "select": 1, "train": 2, "buffer": 0.1, "evaluate": 0.2, "total": 4},
 "samples_per_second": 129, "peak_rss_bytes": 104857600}
END
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
