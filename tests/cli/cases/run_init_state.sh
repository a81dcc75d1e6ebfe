# --init-state: a run directory, checkpoint or state; if the shapes differ, the message names the options
export STREAMFP_REGISTRY=$PWD/runs.db
mkfile vit tiny.safetensors 1 0
mkdir -p p/cat p/dog q/cat q/dog q/emu
for i in 1 2 3; do
    mkfile image "p/cat/$i.png" 40 30 "$i"
    mkfile image "p/dog/$i.png" 30 40 "$((i + 9))"
    mkfile image "q/emu/$i.png" 30 40 "$((i + 20))"
done
cp p/cat/* q/cat && cp p/dog/* q/dog
run() { streamfp run --preset paper --batch 3 --backbone tiny.safetensors --attune off --json --pool 8 --prompt-length 4 --prompt-layers 0-1 --tasks 1 --data folder:p "$@" 2>&1 >/dev/null |
    grep -v 'no test set'; echo "exit ${PIPESTATUS[0]}"; }
run --out first
run --out second --init-state first
run --out third --init-state first/checkpoint
cmp second/state.safetensors third/state.safetensors && echo the same
run --out fourth --init-state first/state.safetensors
cmp second/state.safetensors fourth/state.safetensors && echo the same
run --out o --init-state first --pool 9
run --out o --init-state first --prompt-length 6
run --out o --init-state first --prompt-layers 0-0
run --out o --init-state first --tasks 2
run --out o --init-state first --data folder:q
run --out o --init-state p
mkfile flip first/state.safetensors flipped.safetensors -20000
run --out o --init-state flipped.safetensors | sed -E 's/(is|expected) [0-9a-f]{8}/\1 SUM/g'
# in place: the state of the output directory is read, and still exists for --resume
run --out first --init-state first
run --out first --init-state ./first --resume
# the state of a later task
run --out two --tasks 1,1
run --out o --tasks 1,1 --init-state two
run --out o --tasks 1,1 --init-state two/state-task-1.safetensors
# class k of a state is label k of the stream: if both have a name for it, the names must be equal
mkdir r && cp -r p/dog r/dog && cp -r q/emu r/emu
run --out o --init-state first --data folder:r
run --out three --tasks 1,1,1 --data folder:q
run --out o --tasks 1,1,1 --data folder:q --order 2 --init-state three/state-task-1.safetensors
names() { streamfp inspect --json "$1/state.safetensors" | grep -o '"class_names":\[[^]]*\]'; }
run --out free --tasks free
names free
run --out more --tasks free --init-state free --data folder:q
names more
run --out fewer --tasks free --init-state more
names fewer
run --out o --tasks free --init-state more --data folder:r
printf '%s\n' p/cat/1.png,0 p/dog/1.png,1 >numbers.csv
run --out o --init-state first --data manifest:numbers.csv
