# a wrong grid is refused with the row of the table and the reason, before anything runs
export STREAMFP_REGISTRY=$PWD/runs.db
try() {
    echo "--- $*"
    streamfp sweep "$@" --data synthetic:20 --tasks 2 --threads 1 --out out
    echo "exit $?"
}
try
try --grid sigma
try --grid sigma=0.2,,0.5
try --preset paper --grid sigma=0.2,abc
try --preset paper --grid buffer=er,abc --grid sigma=0.2,0.5
try --grid sgima=0.2
try --grid seed=1,2
try --grid sigma=0.2 --grid sigma=0.5
try --grid precision=f32,f31
try --grid sigma=0.5 --seeds 65
try --grid sigma=0.2,0.4 --grid method=ncm,slda --img-size 32
try --grid sigma=0.2,0.4 --grid method=ncm,slda --img-size 32 --dry-run
try --grid head=linear,mix
try --grid preset=fast,best
try --preset paper --grid pool=1,2 --img-size 32
try --grid sigma=0.5 --check missing.json
find . -name result.json
ls
