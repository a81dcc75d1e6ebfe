source <(streamfp help --completion bash)
compopt() { how+=" $2"; } # outside of a completion there are no options to change
try() {
    local how=
    COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
    _streamfp
    echo "$* -> ${COMPREPLY[*]}${how:+ ($how )}"
}
touch weights.safetensors
try streamfp pre
try streamfp predict --res
try streamfp predict --resize ''
try streamfp predict --backbone we
try streamfp predict --topk ''
try streamfp inspect we
try streamfp help con
try streamfp run --buffer e
try streamfp run --method ''
# the kinds of sources, then files; bash splits words at : and =
try streamfp run --data ''
try streamfp run --test s
try streamfp run --data folder : we
try streamfp run --data folder:we
try streamfp pretrain --data = tar : we
try streamfp eval --data :
# numbers have no completion
try streamfp run --batch ''
try streamfp run --sigma ''
try streamfp run --seed ''
# words and files
try streamfp run --rate ''
try streamfp run --tasks ''
try streamfp run --backbone b
mkdir wood
try streamfp run --out w
# keys, their values, and switches that can be turned off
try streamfp run --set po
try streamfp run --set pool-kind = ''
try streamfp run --drop-rule = a
try streamfp run --wei
try streamfp run --weighted ''
try streamfp run --weighted --ba
try streamfp run --no
try streamfp run --r
# words of one command
try streamfp runs ''
try streamfp runs --json s
try streamfp runs show w
try streamfp runs compare wood we
try streamfp data ''
try streamfp data describe s
try streamfp bench ''
# options after a verb; programs of the Python package have the options of a run; keys and values of a grid
try streamfp runs compare --l
try streamfp runs compare wood --l
try streamfp experiment all --se
try streamfp exp
try streamfp sweep --grid si
try streamfp sweep --grid sigma = ''
try streamfp sweep --grid method = ''
try streamfp sweep --grid out
