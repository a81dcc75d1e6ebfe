# precedence: file < --set < option
export STREAMFP_REGISTRY=$PWD/runs.db
printf '# a small run\npreset: paper\nimg-size: 32\ndata: synthetic:60\ntasks: 2\nbatch: 5\nseed: 7\nsigma: 0.4\neval-limit: 2\nthreads: 1\n' >small.yaml
value() { sed -n "/\"config\"/,/}/s/^  \"$1\": \"\(.*\)\".*/$1 \1/p" "$2/result.json"; }
streamfp run --config small.yaml --out plain >/dev/null 2>talk || cat talk
for key in data tasks batch seed sigma; do value $key plain; done
wc -l <plain/events.jsonl
streamfp run --config small.yaml --set batch=10 --set seed=8 --sigma 0.2 --out changed >/dev/null 2>talk || cat talk
for key in data tasks batch seed sigma; do value $key changed; done
wc -l <changed/events.jsonl
