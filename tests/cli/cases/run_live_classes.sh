# a label that resembles a known class adds a class with a warning; with --classes strict its samples are skipped and reported
export STREAMFP_REGISTRY=$PWD/runs.db
run() {
    streamfp run --threads 1 "$@" >stdout 2>stderr
    echo "exit $?"
    grep -v 'stands in\|samples/s' stderr
    grep -E '^  (offered|unlabelled:)' stdout
}
classes() { streamfp inspect --json "$1/state.safetensors" | grep -o '"class_names":\[[^]]*\]'; }
mkdir -p in/mug1 in/mug2 in/bowl in/Bowls in/BOWL in/plate 'in/mug1 '
for d in in/*; do mkfile image "$d/1.png" 32 32 "${#d}"; done
printf '%s\n' mug1 mug2 bowl >in/classes.txt
touch in/.end
echo 'open:'
run --data watch:in --out open
classes open
echo 'strict:'
run --data watch:in --out strict --classes strict
classes strict
echo 'the classes of a state are known:'
rm in/classes.txt
run --data watch:in --out more --classes strict --init-state open
classes more
echo 'no class is known:'
run --data watch:in --out o --classes strict
mkdir all && cp -r in/plate in/.end all/ && echo mug >all/classes.txt
run --data watch:all --out o --classes strict
run --data folder:in --out o --classes strict
run --data watch:in --out o --classes 3
run --data watch:in --out o --classes closed
echo 'standard input, with a late label that is corrected:'
mkdir -p tar/1 tar/2 tar/3
cp in/plate/1.png tar/1/who.png
cp in/bowl/1.png tar/2/a.png && printf bowl >tar/2/a.cls
cp in/mug1/1.png tar/2/b.png && printf mug1 >tar/2/b.cls
printf plaet >tar/2/who.cls
cp in/mug2/1.png tar/3/c.png && printf mug2 >tar/3/c.cls
printf plate >tar/3/who.cls
for i in 1 2 3; do tar -C tar/$i --sort=name -cf - $(ls tar/$i); done >in.tar
run --data stdin --out pipe --classes strict --init-state open <in.tar
tr -d ' \n' <pipe/result.json | grep -o '"labels":{[^}]*}'
