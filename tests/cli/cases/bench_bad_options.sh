# what would not be measured is refused before anything is made
try() {
    streamfp bench --size tiny "$@"
    echo "exit $?" >&2
}
try --passes-only --timestamp-only
try --passes-only --select random
try --passes-only --buffer=er
try --select best
