# for long names the beginning and the end are shown, and columns stay aligned
export STREAMFP_REGISTRY=$PWD/runs.db
long=a-class-with-a-name-that-is-much-longer-than-any-column-can-be
mkdir -p "in-a-folder-with-a-long-name/$long" in-a-folder-with-a-long-name/b
mkfile image "in-a-folder-with-a-long-name/$long/1.png" 32 32 1
mkfile image in-a-folder-with-a-long-name/b/1.png 32 32 2
mkfile image in-a-folder-with-a-long-name/b/2.png 32 32 3
streamfp data describe folder:in-a-folder-with-a-long-name | sed -n '/^class /,$p'
streamfp run --data folder:in-a-folder-with-a-long-name --method ncm --threads 1 --out out >/dev/null 2>&1
streamfp runs | cut -c 27-83
