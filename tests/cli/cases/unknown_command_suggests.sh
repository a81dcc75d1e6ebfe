streamfp inpsect x
echo "exit $?" >&2
streamfp zzzzzz
echo "exit $?" >&2
streamfp --verbose
