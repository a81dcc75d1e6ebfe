streamfp data
streamfp data list --json | sed 's/"installed":[a-z]*/"installed":?/'
mkdir -p data/cifar10
touch data/cifar10/data_batch_1.png
echo "--- with cifar10"
streamfp data | grep cifar10
