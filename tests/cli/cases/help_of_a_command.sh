streamfp convert --help
streamfp help convert | diff - <(streamfp convert --help)
