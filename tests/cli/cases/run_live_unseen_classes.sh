# the test set of a live stream has a class that has not appeared: its images count as wrong, and a message and the report say so
export STREAMFP_REGISTRY=$PWD/runs.db
mkdir -p in/cat in/dog test/cat test/dog test/owl
for i in 1 2 3 4; do
    mkfile image in/cat/$i.png 32 32 $i
    mkfile image in/dog/$i.png 32 32 1$i
    mkfile image test/cat/$i.png 32 32 $i
    mkfile image test/dog/$i.png 32 32 1$i
    mkfile image test/owl/$i.png 32 32 2$i
done
touch in/.end
streamfp run --data watch:in --test folder:test --img-size 32 --threads 1 --out out >stdout 2>stderr || cat stderr
grep 'not appeared' stderr
grep -o '[^>]*have not appeared[^.]*\.' out/report.html
