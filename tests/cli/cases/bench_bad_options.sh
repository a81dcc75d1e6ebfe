# options without effect are refused before anything is created
try() {
    streamfp bench --size tiny "$@"
    echo "exit $?" >&2
}
try --passes-only --timestamp-only
try --passes-only --select random
try --passes-only --buffer=er
try --select best
