#!/bin/sh
# The routes of `streamfp serve` with curl: sh serve_curl.sh http://127.0.0.1:8080 CUP.jpg MUG.jpg WHAT.jpg
# With a token, each command needs -H "Authorization: Bearer $(cat token)".
set -eu
base=$1/v1 cup=$2 mug=$3 what=$4

# learn: the same key never makes a second sample, so a command that had no answer may be repeated
curl -fsS --retry 5 -H "Idempotency-Key: $(cksum < "$cup")" --data-binary "@$cup" "$base/samples?label=cup&name=first"
curl -fsS --retry 5 -H "Idempotency-Key: $(cksum < "$mug")" --data-binary "@$mug" "$base/samples?label=mug&name=second"

# ask: one image, several, a part of one
curl -fsS --data-binary "@$what" "$base/predict?top=3"
curl -fsS -F "a=@$cup" -F "b=@$what" "$base/predict"
curl -fsS --data-binary "@$what" "$base/predict?box=0.25,0.25,0.75,0.75"

# ask and keep, label later, correct, forget
id=$(curl -fsS --data-binary "@$what" "$base/samples" | sed -n 's/^{"id":\([0-9]*\).*/\1/p')
curl -fsS -X PUT -d '{"label":"cup"}' "$base/samples/$id/label"
curl -fsS -X PUT -d '{"label":"mug"}' "$base/samples/$id/label"
curl -fsS -X DELETE "$base/samples/$id?again=1" # without again=1 the same image is never learned again

# look
curl -fsS "$base/samples?standing=learned&limit=10"
curl -fsS "$base/queue?limit=5"
curl -fsS "$base/classes"
curl -fsS "$base/status"
curl -fsS -o state.safetensors "$base/state"
