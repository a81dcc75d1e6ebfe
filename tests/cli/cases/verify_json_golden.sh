# two cases in one object on one line; the first and the last tensor of each
need_shared
streamfp-verify --json "$SHARED/golden/plain" "$SHARED/golden/buffer.json" >out
echo "exit $?, lines $(wc -l <out)"
sed -E 's/"error":[-+0-9.e]+/"error":E/g; s|"'"$SHARED"'/|"SHARED/|g; s/(\[\{[^}]*\}),(\{[^}]*\},)*(\{[^}]*\}\])/\1 ... \3/g' out
grep -o '"name":' out | wc -l
