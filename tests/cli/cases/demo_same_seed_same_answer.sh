streamfp demo --json --threads 1 --out a.png | sed 's/"seconds.*//' >a
streamfp demo --json --threads 3 --out b.png | sed 's/"seconds.*//' >b
cmp a b && cmp a.png b.png && echo same
streamfp demo --json --seed 2 --out b.png | sed 's/"seconds.*//' | cmp -s - a || echo different
