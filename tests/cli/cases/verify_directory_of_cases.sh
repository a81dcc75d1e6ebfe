# a directory of golden cases: one line per case
need_shared
mkdir golden
cp -r "$SHARED/golden/plain" golden/b
cp -r "$SHARED/golden/two_tasks" golden/a
cp "$SHARED/golden/buffer.json" golden
mkdir golden/empty
count() { sed 's/[0-9]* of [0-9]* hold/N of N hold/'; }
streamfp-verify golden | count
echo "exit ${PIPESTATUS[0]}"
rm golden/b/batch.safetensors
streamfp-verify golden | count
echo "exit ${PIPESTATUS[0]}"
streamfp-verify golden/empty
echo "exit $?"
