# A sample is shown as dropped or as excluded, never as both, and what was learned in closed form is not shown as trained on.
# Constructed runs: in result.json, dropped contains excluded, and a closed-form head alone counts its samples as trained.
export STREAMFP_REGISTRY=runs.db
result() { # DIR PRESET DROPPED EXCLUDED
    mkdir "$1"
    cat >"$1/result.json" <<END
{"version": "0.7.0", "started": "2025-01-01T00:00:0${#2}Z", "finished": true, "seed": 1,
 "machine": {"cpu": "a processor", "threads": 2, "kernels": "avx2", "gemm": "oneDNN"},
 "config": {"data": "synthetic:400", "preset": "$2"},
 "task_names": ["first"], "class_names": ["cat", "dog"], "tasks_done": 1,
 "accuracy_matrix": [[0.9]], "average_accuracy": 0.9, "forgetting": null, "backward_transfer": null,
 "prequential_accuracy": null, "per_class": [0.5, 1],
 "samples": {"offered": 400, "scored": 400, "trained": 200, "replayed": 190, "dropped": $3, "excluded": $4},
 "lambda": null, "cs": null, "lag": {"mean": null, "max": null, "last": null}, "coverage": 1,
 "seconds": {"decode": 0.5, "select": 1, "train": 2, "buffer": 0.1, "evaluate": 0.2, "total": 4},
 "samples_per_second": 129, "peak_rss_bytes": 104857600}
END
}
result paper paper 48 48
result authors authors 60 48
result default default 7 0
echo "--- compare"
streamfp runs compare paper authors default --json | grep -oE '"samples.(dropped_busy|excluded)":\{"n":1,"mean":[0-9]*'
echo "--- show"
streamfp runs show paper | grep -E '^  (dropped|excluded)'
echo "--- closed form"
config() { # DIR OPTIONS CLOSED_FORM TRAINED: a run with these options and numbers
    cp -r default "$1"
    sed -i "s/\"preset\": \"default\"/$2/; s/\"trained\": 200/\"trained\": $4, \"closed_form\": $3/" "$1/result.json"
}
config slda '"method": "slda"' 108 108
config plain '"select": "random"' 0 45
streamfp runs compare slda plain --json | grep -oE '"samples.(closed_form|trained_on)":."n":1,"mean":[0-9]*'
streamfp runs show slda | grep -E '^  (learned|trained)'
