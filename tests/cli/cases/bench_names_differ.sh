# Plain builds only
# With 4 images and 2 threads, a thread has as many rows as a small call: this product is measured once. Prints repeated names.
streamfp bench --size tiny --batch 4 --threads 2 --rounds 1 >rows
grep 'GFLOP/s$' rows | sed 's/  .*//' | sort | uniq -d
grep -c 'packed, 394 rows per call' rows
