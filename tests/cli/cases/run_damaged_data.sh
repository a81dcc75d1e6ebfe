# Published layouts with faults: a clear error, or images that are skipped, counted and reported.
export STREAMFP_REGISTRY=$PWD/runs.db
number=0
try() { # WHAT DATA OPTIONS...
    local out=out$((number += 1)) data=$2
    echo "--- $1"
    shift 2
    streamfp run --preset paper --img-size 32 --data "$data" --threads 1 --eval-limit 1 --select random --sigma 0.1 --buffer none --out $out "$@" >/dev/null 2>talk
    echo "exit $?"
    grep -v 'stands in\|^task ' talk
    [ ! -f $out/result.json ] || tr -d ' \n' <$out/result.json | grep -Eo '"samples":\{[^}]*\}|"skipped":[0-9]+' | sort -u
}

replica stream51 s51 --each 1 --size 32 >/dev/null
images() { grep -o '"[^"]*\.jpg"' s51/Stream-51_meta_train.json | tr -d '"' | sed -n "$1p"; }
rm "s51/$(images 1)"
: >"s51/$(images 20)"
try "stream51: a missing file and one of no bytes" stream51:s51
cp s51/Stream-51_meta_train.json whole.json
head -c 500 whole.json >s51/Stream-51_meta_train.json
try "stream51: broken JSON" stream51:s51
sed 's/^\[\[0,/[[51,/' whole.json >s51/Stream-51_meta_train.json
try "stream51: a class that is none" stream51:s51
rm s51/Stream-51_meta_train.json
try "stream51: no list" stream51:s51

replica core50 core --each 1 --size 32 >/dev/null
printf "cposix\nsystem\n(S'touch owned'\ntR." >core/labels.pkl
try "core50: a pickle that would run something" core50:core
head -c 100 core/LUP.pkl >cut
mv cut core/labels.pkl
try "core50: a pickle that ends early" core50:core
rm core/labels.pkl
try "core50: two of three pickles" core50:core

replica clear10 clear --each 1 --size 32 >/dev/null
sed -i 1d clear/train/class_names.txt
try "clear10: a class without a name" clear10:clear
rm clear/train/class_names.txt
try "clear10: no names" clear10:clear

replica tar tar --each 2 --size 32 >/dev/null
shard=$(find tar -name '*.tar' | sort | sed -n 1p)
head -c $(($(wc -c <"$shard") / 2 + 77)) "$shard" >cut.tar
try "a cut tar" tar:cut.tar

replica manifest list --each 2 --size 32 >/dev/null
cut -d , -f 1,2 list/manifest.csv >list/plain.csv
first=$(sed -n 2p list/plain.csv)
{
    cat list/plain.csv
    echo "${first%,*},"
    echo gone.jpg,star
} >list/more.csv
try "manifest: an image without a label, and one that is missing" manifest:list/more.csv --tasks 2
sed "2s/,.*/,dragon/" list/plain.csv >list/test.csv
try "a test set with a class that the stream has not" manifest:list/plain.csv --tasks 2 --test manifest:list/test.csv
ls
