# Sourced by crash_points and torture: short executions of the program, and the form in which their outputs are compared.
#
# The caller sets streamfp and faults (the library of tests/tools/faults.c) and calls prepare_inputs. $dir is a new directory, in which
# everything happens; it is removed at the end. All outputs of an execution are below $dir/run, so that paths in them are the same.
# shellcheck shell=bash disable=SC2034,SC2154
export LC_ALL=C NO_COLOR=1 TERM=dumb
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
shopt -s globstar nullglob

# A ViT of 13,000 weights, images, and the settings with which a run takes less than a tenth of a second.
prepare_inputs() {
    local i
    export STREAMFP_REGISTRY=$dir/inputs.db
    "$streamfp" pretrain --data synthetic:16 --img-size 16 --patch 8 --dim 16 --depth 3 --heads 1 --batch 16 --epochs 1 \
        --score-every 0 --score-images 2 --threads 1 --out "$dir/backbone" >"$dir/log" 2>&1 || return 1
    small=(--backbone "$dir/backbone/model.safetensors" --threads 1)
    learner=(--preset paper --pool 4 --prompt-length 2 --prompt-layers 0-2 --buffer-size 4 --replay 2)
    mkdir -p "$dir/in/disc" "$dir/in/ring"
    for i in 1 2 3 4; do
        "$mkfile" image "$dir/in/disc/$i.png" 16 16 "$i" && "$mkfile" image "$dir/in/ring/$i.png" 16 16 "1$i" || return 1
        cp "$dir/in/disc/$i.png" "$dir/in/u$i.png"
    done
    printf 'u1.png,ring\nu2.png,disc\n' >"$dir/in/labels.csv" # u3 and u4 stay unlabelled
    touch "$dir/in/.end"
    mkdir "$dir/tar"
    for i in 1 2 3 4 5 6 7 8; do
        cp "$dir/in/disc/$(((i + 1) / 2)).png" "$dir/tar/$i.png"
        printf 'class%d' $((i % 2)) >"$dir/tar/$i.cls"
    done
}

# Prints everything of $dir/run that must be the same: the names of files, states and models byte by byte, logs and results without
# times, memory and speed. A slow execution writes more than one checkpoint, so checkpoint.old may exist. On a full disk SQLite cannot
# move its log into the store when it is closed: the log stays, and is read with the store.
outputs() {
    local files=() exact=() texts=() name
    cd "$dir/run" 2>/dev/null || return 0
    for name in **; do
        [ -f "$name" ] || continue
        case $name in
        checkpoint.old | checkpoint.safetensors.old | samples.db-wal | samples.db-shm | cache/* | costs/*) continue ;;
        checkpoint | checkpoint.safetensors | *.html | tables/*) ;;
        *.safetensors | *.npy | *.png) exact+=("$name") ;;
        *.json | *.jsonl) texts+=("$name") ;;
        esac
        files+=("$name")
    done
    printf '%s\n' "${files[@]}"
    if [ ${#exact[@]} -gt 0 ]; then sha256sum "${exact[@]}"; fi
    if [ ${#texts[@]} -gt 0 ]; then without_times "${texts[@]}" | if [ "$live" = yes ]; then without_arrival; else cat; fi; fi
}
live=no
# Ids of a live stream are those of the arrivals, also of images that are delivered again. Predictions depend on how much was learned when
# the image arrived.
without_arrival() { sed -E 's/"offered":\[[0-9]+\]//; s/^\{"id":[0-9]+,"t":[0-9]+,("name".*),"class":.*/\1/'; }
without_times() { # FILE...
    sed -E 's/,"seconds":\{.*\}\}$//; s/,"time":"[^"]*"(,"names":.*)?//; s/"(seconds|rate|lag|cache)": *\{[^}]*\}//g; 
        s/"(started|date|samples_per_second|images_per_second|pictures_per_second|batch_seconds|peak_rss_bytes|seconds|estimate|Runtime)": *[^,}]*//g' "$@"
}

# Prints all runs of the registry, without their numbers and times.
registered() {
    "$streamfp" runs --limit 0 --json | tr '{' '\n' | without_times | sed -E 's/"id": *[0-9]+,?//; s/[],}]*$//' | sort
}
