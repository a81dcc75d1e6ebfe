program=$(command -v streamfp)
mkdir empty bin
PATH=$PWD/empty "$program" data fetch cifar10
echo "exit $?" >&2
for code in 3 0; do
    printf '#!/bin/sh\nexit %d\n' "$code" >bin/npm
    chmod +x bin/npm
    PATH=$PWD/bin:$PATH streamfp data fetch cifar10 2>&1 | sed 's/fetch-[A-Za-z0-9]*/fetch-X/' >&2
done
printf '#!/bin/sh\necho broken >x.tgz\n' >bin/npm
PATH=$PWD/bin:$PATH streamfp data fetch cifar10 2>&1 | sed 's/fetch-[A-Za-z0-9]*/fetch-X/' >&2
ls -A # no files are left
: >file
PATH=$PWD/bin:$PATH streamfp data fetch cifar10 --out file/x
