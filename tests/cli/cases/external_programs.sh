# A command that is not part of the program is a program of its own: beside the program, else in PATH. It finds the program in STREAMFP.
mkdir bin path
cp "$(readlink -f "$(command -v streamfp)")" bin/streamfp
PATH=$PWD/path:/usr/bin:/bin
program() { # FILE WORD
    printf '#!/bin/sh\necho "%s ${0##*/} $# $*, ${STREAMFP##*/cwd/}"\nexit 3\n' "$2" >"$1"
    chmod +x "$1"
}
streamfp() { bin/streamfp "$@"; echo "exit $?"; }
streamfp sweep --grid a=b
streamfp help compare 2>&1 | head -1 | cut -c1-60
program path/streamfp-sweep found
streamfp sweep --grid 'a b' ''
streamfp help sweep
program bin/streamfp-sweep beside
streamfp sweep
program path/streamfp-mine own
streamfp mine x
streamfp ../mine
chmod -x bin/streamfp-sweep
streamfp sweep
