for option in --tpok --nomalise --thread --zzzzzzzz -k --no-topk; do
    streamfp predict "$option" 1 x.png
    echo "exit $?" >&2
done
