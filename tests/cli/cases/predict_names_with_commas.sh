# columns are separated by tabs, because names and paths may contain commas
mkfile vit tiny.safetensors 1 3
mkdir 'p, q: r'
mkfile image 'p, q: r/a.png' 50 40 3
printf 'tench, Tinca tinca\ncock: 50 %%\nhen\tand chicken\n' >names.txt
streamfp predict --backbone tiny.safetensors --names names.txt 'p, q: r' >out
awk -F '\t' '{print NF, $1}' out
cut -f 2,4,6 out | tr '\t' '\n' | sort
cut -f 3,5,7 out | grep -cE '^[0-9.]+ %.[0-9.]+ %.[0-9.]+ %$'
