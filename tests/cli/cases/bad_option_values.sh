for option in --topk=0 --topk=101 --topk=5x --topk= --topk=99999999999999999999 --resize=fit --threads=-1 --json=maybe --names=; do
    streamfp predict "$option" x.png 2>&1 >/dev/null | head -1 >&2
done
streamfp predict x.png --topk
