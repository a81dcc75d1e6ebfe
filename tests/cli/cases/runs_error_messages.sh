export STREAMFP_REGISTRY=runs.db
streamfp runs shwo 1
streamfp runs show
streamfp runs compare 1
streamfp runs show 1 --limit 3
mkdir a
echo '{"version": 1}' >a/result.json
streamfp runs show a
streamfp runs add a
streamfp runs compare a a
streamfp runs show 7
streamfp runs show nowhere
printf 'x%.0s' {1..5000} >runs.db
streamfp runs
