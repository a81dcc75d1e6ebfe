# Every layout opens with the --data value that is printed for it.
# Plain builds only: it writes and reads thousands of images. Unit tests read each layout with sanitizers.
for layout in stream51 core50 clear10 clear100 folder domain manifest idx cifar tar; do
    line=$(replica "$layout" "mini/$layout" --size 32 --each 1)
    echo "$line"
    streamfp data describe "${line##* }" | grep -E '^(images|classes|tasks|sample|width)'
done
echo "--- the same seed gives the same bytes"
replica cifar a --seed 5
replica cifar b --seed 5 --json
diff -r a b && replica cifar c --seed 6 && diff -rq a c | sort
