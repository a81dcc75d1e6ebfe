streamfp verify --help
streamfp help verify | diff - <(streamfp verify --help)
