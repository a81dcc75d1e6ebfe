printf 'PK\003\004rest' >weights.pth
streamfp inspect weights.pth
