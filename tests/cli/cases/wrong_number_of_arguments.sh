streamfp inspect
echo "exit $?" >&2
streamfp inspect a b
echo "exit $?" >&2
streamfp predict
echo "exit $?" >&2
streamfp predict --backbone x
echo "exit $?" >&2
streamfp predict --backbone x --eval y.csv z.png
echo "exit $?" >&2
streamfp convert
