[ -e /dev/full ] || exit 77
streamfp --help >/dev/full
