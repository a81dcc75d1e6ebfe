# --out: an unfinished training is refused, a finished one is replaced with a message, and only one process may write
small=(pretrain --data synthetic:40 --img-size 16 --patch 8 --dim 32 --depth 1 --heads 2 --batch 8 --threads 1)
train() {
    streamfp "${small[@]}" "$@" 2>&1 >/dev/null
    echo "exit $?"
}
same() { diff -r "$1" "$1.before" && echo "$1 as before"; }
train --epochs 1 --out done
touch done/teacher.cache done/notes.txt
cp -r done done.before
train --epochs 1 --out done --init done/config.json
same done
train --epochs 1 --out done --init done/model.safetensors
train --epochs 1 --out done
ls done

cp done/checkpoint.safetensors first
streamfp "${small[@]}" --epochs 100000 --checkpoint-every 0.02 --out done --resume >/dev/null 2>&1 & # continues a finished training
pid=$!
continued() { ! cmp -s first done/checkpoint.safetensors; }
wait_until continued
train --epochs 1 --out done
train --epochs 1 --out done --resume
{ kill -9 $pid && wait $pid; } 2>/dev/null # the shell may report the kill
rm -r done.before && cp -r done done.before
train --epochs 1 --out done
same done

mkfile image a.png 8 8 1
train --epochs 1 --out a.png

echo "a model that is not of pretraining:"
mkdir theirs && echo weights >theirs/model.safetensors && echo '{"architecture": "vit"}' >theirs/config.json
cp -r theirs theirs.before
train --epochs 1 --out theirs
train --epochs 1 --out theirs --resume
same theirs
