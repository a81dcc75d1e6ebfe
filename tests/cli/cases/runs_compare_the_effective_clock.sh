# A clock that was not given follows from the rate and the stream: to give it explicitly makes no difference.
result() { # DIR DATA MORE: further options of its config
    mkdir "$1"
    cat >"$1/result.json" <<END
{"version": "0.1.0", "started": "2025-01-01T00:00:00Z", "finished": true, "seed": 1,
 "machine": {"cpu": "a processor", "threads": 2, "kernels": "avx2", "gemm": "oneDNN"},
 "config": {"data": "$2"$3, "seed": "1"},
 "task_names": ["all"], "class_names": ["cat", "dog"], "tasks_done": 1,
 "accuracy_matrix": [[0.9]], "average_accuracy": 0.9, "forgetting": null, "backward_transfer": null,
 "prequential_accuracy": null, "per_class": [0.5, 1],
 "samples": {"offered": 400, "scored": 400, "trained": 200, "replayed": 190, "dropped": 0},
 "lambda": null, "cs": null, "lag": {"mean": 0, "max": 0, "last": 0}, "coverage": 1,
 "seconds": {"decode": 0.5, "select": 1, "train": 2, "buffer": 0.1, "evaluate": 0.2, "total": 4},
 "samples_per_second": 129, "peak_rss_bytes": 104857600}
END
}
number=0
pair() { # WHAT DATA MORE DATA MORE
    number=$((number + 1))
    result a$number "$2" "$3"
    result b$number "$4" "$5"
    echo "--- $1"
    streamfp runs compare a$number b$number --json | grep -o '"options_that_differ":{[^}]*}'
}
max=', "rate": "max"' rated=', "rate": "400"'
clock() { echo ", \"clock\": \"$1\""; }
echo "the same:"
pair "virtual, with a rate" synthetic:90 "$rated" synthetic:90 "$rated$(clock virtual)"
pair "off, without one" synthetic:90 "$max$(clock off)" synthetic:90 "$max"
for data in dir:in stdin synthetic:0; do pair "real, $data with a rate" $data "$rated" $data "$rated$(clock real)"; done
pair "off, live without a rate" dir:in "$max" dir:in "$max$(clock off)"
echo "not the same:"
pair "paper" synthetic:90 "$rated" synthetic:90 "$rated$(clock paper)"
pair "off" synthetic:90 "$rated$(clock off)" synthetic:90 "$rated"
pair "live" dir:in "$max" dir:in "$max$(clock real)"
pair "no stream without end" synthetic:90 "$rated" synthetic:90 "$rated$(clock real)"
