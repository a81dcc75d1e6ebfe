# The comparison as a table of a paper, for a spreadsheet, as a page and as a plot.
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
echo "--- LaTeX"
streamfp runs compare a b c d --latex
echo "--- Markdown"
streamfp runs compare a b c d --markdown
echo "--- CSV"
streamfp runs compare a b c d --csv
echo "--- one group"
streamfp runs compare a b --markdown | grep random
echo "--- two options differ"
result e 1 random 0.1 0.75
result f 1 streamfp 0.1 0.85
streamfp runs compare a d e f --csv | cut -d, -f1-6
echo "--- page"
streamfp runs compare a b c d e f --html page.html
grep -o '<h1>[^<]*</h1>\|<h3>[^<]*</h3>\|<th>select[^<]*</th>' page.html
echo "--- plot of bars"
streamfp runs compare a b c d --plot bars.svg
grep -o '<title>[^<]*</title>' bars.svg
echo "--- plot over an option with numbers"
streamfp runs compare a b d e f --plot lines.svg
grep -o '<title>[^<]*</title>\|middle">[^<]*<' lines.svg
echo "--- page and plot together"
streamfp runs compare a b c d --html both.html --plot both.svg
grep -o '<h3>[^<]*</h3>' both.html
cmp both.svg bars.svg && echo same
echo "--- bad"
streamfp runs compare a b --csv --plot plot.svg
streamfp runs compare a b --latex --csv
streamfp runs compare a b --json --html page.html
streamfp runs compare a b --plot nowhere/plot.svg
streamfp runs show a --latex
streamfp runs --latex
result g 1 random 0.01 null
result h 2 random 0.01 null
streamfp runs compare g h --plot none.svg
ls none.svg 2>/dev/null
streamfp runs compare g h --html page.html
grep -o 'No run has[^<]*' page.html
streamfp runs compare a b --plot plot.png
ls plot.png 2>/dev/null
echo "--- a run that has not finished is marked and never the best"
sed -i 's/"finished": true/"finished": false/' d/result.json
streamfp runs compare a b c d --latex | grep -E '^(random|streamfp)'
streamfp runs compare a b c d | grep -c '^streamfp (not finished) .* 80.00'
streamfp runs compare a b c d --json | grep -o '"not_finished":[^]]*.'
