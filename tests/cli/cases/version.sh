streamfp --version
