# Constructed runs: result.json as `run` would write it, three seeds of one method and one of another.
export STREAMFP_REGISTRY=runs.db
result() { # DIR STARTED SEED SELECT ACCURACY
    write_result "$1" "$2" "$3" synthetic:400 ", \"select\": \"$4\", \"buffer\": \"er\"" "$5"
}
streamfp runs
result a 2025-01-01T00:00:00Z 1 random 0.70
result b 2025-01-02T00:00:00Z 2 random 0.72
result c 2025-01-03T00:00:00Z 3 random 0.77
result d 2025-01-04T00:00:00Z 1 streamfp 0.80
streamfp runs add a b c d
streamfp runs add b
streamfp runs add a d --json
streamfp runs --limit 3
streamfp runs list --limit 1 --json | grep -o '"id":[0-9]*'
streamfp runs --limit 1 --json
echo "--- show"
streamfp runs show 2
streamfp runs show d --json | grep -c '^{"version":"[0-9.]*","started":"2025-01-04T00:00:00Z".*}$'
echo "--- compare"
streamfp runs compare 1 2 3 d
streamfp runs compare a d --json
echo "--- several of one seed: the newest counts"
result e 2025-01-05T00:00:00Z 1 random 0.90
result f 2025-01-01T00:00:00Z 2 random 0.10
result g 2025-01-01T00:00:00Z 1 random 0.20
streamfp runs compare e a d
streamfp runs compare a f e b g
streamfp runs compare g a --json | grep -o '^.*"forgetting"'
echo "--- the name of the method has the preset"
result h 2025-01-06T00:00:00Z 1 random 0.95
sed -i 's/"config": {/"preset_values": {"coreset": "paper"}, "config": {"preset": "paper", "coreset": "paper", /' h/result.json
streamfp runs add h
streamfp runs --limit 2 | cut -c 30-54
echo "--- the same run twice, under any name"
streamfp runs compare 4 1 d
echo "exit $?"
