# --out: an unfinished run is refused, a finished one is replaced with a message, only one process may write, and other files are kept
export STREAMFP_REGISTRY=$PWD/runs.db
args=(run --img-size 32 --threads 1 --eval-limit 1 --method ncm)
run() { # prints the messages without the table
    streamfp "${args[@]}" "$@" 2>&1 >/dev/null | grep -Ev 'stands in|no test set|^task '
    echo "exit ${PIPESTATUS[0]}"
}
same() { diff -r "$1" "$1.before" && echo "$1 as before"; }

echo "finished:"
run --data synthetic:40 --tasks 3,3,4 --out done
for name in notes.txt state-task-1b.safetensors state-mine.safetensors events.jsonl.old checkpoint.bak; do echo mine >done/$name; done
touch done/events.jsonl.3 done/predictions.jsonl
cp -r done done.before
run --data synthetic:40 --tasks 11 --out done
run --data folder:nowhere --out done
run --data synthetic:40 --tasks 2 --out done --costs nowhere --rate 10
for c in cat dog; do mkdir -p broken/$c && echo half >broken/$c/1.png; done
run --data folder:broken --tasks 2 --out done
same done
run --data synthetic:40 --tasks 2 --out done
ls done

echo "the initial state of its own directory is kept until it is rewritten:"
learner=(run --preset paper --img-size 32 --threads 1 --eval-limit 1 --data synthetic:40 --tasks 1)
streamfp "${learner[@]}" --out own >/dev/null 2>&1
streamfp "${learner[@]}" --out own --init-state ./own/../own/state.safetensors 2>&1 >/dev/null | grep replaced

echo "not the result of a run:"
mkdir other && echo theirs >other/report.html
run --data synthetic:40 --tasks 2 --out other

echo "unfinished:"
set -m # a separate job: otherwise a background process ignores SIGINT
mkfile image p.png 32 32 1
{
    echo p.png,a,0
    yes p.png,b,1 | head -n 100000 # longer than any test
} >list.csv
streamfp run --img-size 32 --threads 1 --eval-limit 1 --data manifest:list.csv --out cut >/dev/null 2>&1 &
pid=$!
until [ -e cut/state-task-1.safetensors ]; do # the first task is learned
    if ! kill -0 $pid; then break; fi
    sleep 0.01
done
run --data synthetic:40 --out cut
run --data synthetic:40 --out cut --resume
kill -INT $pid
wait $pid
echo "exit $?"
rm -f cut/checkpoint.old # exists if the run was slow
cp -r cut cut.before
run --data synthetic:40 --out cut
mv cut/checkpoint cut/checkpoint.old
run --data synthetic:40 --out cut
mv cut/checkpoint.old cut/checkpoint
same cut

echo "live:"
mkdir -p in/cat && for i in 1 2 3 4; do mkfile image "in/cat/$i.png" 32 32 "$i"; done
touch in/.end
run --data dir:in --out live
cp -r live live.before
run --data dir:in --out live
run --data synthetic:40 --out live
same live

echo "not a directory:"
mkfile image a.png 8 8 1
run --data synthetic:40 --out a.png
run --data synthetic:40 --out a.png/x

echo "among the images:"
for c in cat dog; do mkdir -p images/$c && mkfile image images/$c/1.png 32 32 1; done
run --data folder:images --out images
run --data folder:images --out images/runs/first
run --data folder:images --out images/.runs
ls images
