# states and checkpoints are recognised: fingerprints, tasks, classes; an impossible input size is refused
export STREAMFP_REGISTRY=$PWD/runs.db
mkfile vit tiny.safetensors 1 0
mkdir -p p/cat p/dog
for i in 1 2 3; do
    mkfile image "p/cat/$i.png" 40 30 "$i"
    mkfile image "p/dog/$i.png" 30 40 "$((i + 9))"
done
run() { streamfp run --backbone tiny.safetensors --data folder:p --out "$@" --json >nothing 2>&1 || cat nothing; }
run learner --preset paper --batch 3 --tasks 2 --pool 6 --prompt-length 4 --attune off
run head --method slda
streamfp pretrain --data folder:p --img-size 16 --patch 8 --dim 32 --depth 1 --heads 2 --batch 4 --epochs 1 --out trained >nothing
for file in learner/state.safetensors learner/state-task-1.safetensors learner/checkpoint head/state.safetensors head/checkpoint \
    trained/checkpoint.safetensors; do
    streamfp inspect --brief $file | sed -n '/^metadata/q; /^format/d; /^$/d; p'
done
streamfp inspect --brief --json learner/state.safetensors | grep -oE '"recognised".*"tensor_count'
for of in learner head; do
    mkfile flip $of/state.safetensors $of.safetensors -900
    streamfp inspect --brief $of.safetensors | sed -n '/^recognised/,/^backbone/p'
    streamfp inspect --brief --json $of.safetensors | grep -oE '"saved":.*"backbone_file'
done
# files without settings, as other programs write them, or with wrong settings: only fewer words are printed
mkfile raw bare.safetensors '{"prompt.e_p_1":{"dtype":"F32","shape":[3,2,4],"data_offsets":[0,96]},"last.weight":{"dtype":"F32","shape":[5,4],"data_offsets":[96,176]}}' 176
streamfp inspect --brief bare.safetensors
mkfile raw odd.safetensors '{"prompt.e_p_99999999999":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"__metadata__":{"format":"streamfp-state","version":"\u001b[2J","classes":"-7","seen":"{","class_names":"[3]","open":"x","timestamps":"99999999999999999999","backbone-sizes":"img"}}' 4
streamfp inspect --brief odd.safetensors
for size in 30 48 9000; do
    streamfp inspect --brief --img-size $size tiny.safetensors | grep -E '^(recognised|architecture)'
    echo "exit ${PIPESTATUS[0]}"
done
mkfile raw odder.safetensors '{"weights":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"__metadata__":{"kind":"streamfp pretrain checkpoint","format":"\u001b[2J","version":"1"}}' 4
streamfp inspect --brief odder.safetensors | grep recognised
