# Scripts replace apt-get and sudo. If the package is installed, there is nothing to fetch.
if [ -e /usr/share/datasets/fashion-mnist ]; then
    echo "skipped: fashion-mnist is installed"
    exit 77
fi
program=$(command -v streamfp)
mkdir bin empty
printf '#!/bin/sh\necho "called with: $*" >&2\nexit 100\n' >bin/apt-get
printf '#!/bin/sh\nexec "$@"\n' >bin/sudo
chmod +x bin/*
PATH=$PWD/bin:$PATH streamfp data fetch fashion-mnist
PATH=$PWD/empty "$program" data fetch fashion-mnist
