streamfp --help
