try() {
    streamfp help "$@" >/dev/null
    echo "exit $?" >&2
}
try --man --completion bash
try run --man
try run --completion bash
try --man
