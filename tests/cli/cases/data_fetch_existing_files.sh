if [ ! -e /usr/share/datasets/fashion-mnist ]; then
    echo "skipped: fashion-mnist is not installed"
    exit 77
fi
program=$(command -v streamfp)
mkdir empty
PATH=$PWD/empty "$program" data fetch fashion-mnist
streamfp data describe idx:/usr/share/datasets/fashion-mnist --test --tasks 5
