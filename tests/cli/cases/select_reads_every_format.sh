mkfile vit tiny.safetensors 1 10
for i in 1 2 3 4 5 6; do mkfile image $i.png 40 40 $i; done
streamfp predict --backbone tiny.safetensors --features f.npy --topk 1 ./*.png >/dev/null
streamfp select --method kcenter --features f.npy --ratio 0.5 | wc -l
# one array by name, of a file with several
streamfp select --method kcenter --features tiny.safetensors:head.weight --ratio 0.5 --json | tr -d '0-9, ' 
# blanks around cells, runs of blanks, empty lines
printf '1;2;\t3\r\n\n  4 ; 5;6\r\nnan;7;8\n1e3;-2;inf\n' >odd.txt
streamfp select --method kcenter --features odd.txt --ratio 0.75 --json
printf '  1 \t2\n3  4 \n' | tee blanks.txt | sed 's/^ *//; s/ *$//; s/[ \t][ \t]*/, /' >commas.txt
for f in blanks commas; do streamfp select --method kcenter --features $f.txt --ratio 1 --json; done

# files as spreadsheets write them: of three rows, row 2 is the farthest from row 0, regardless of the header
far() { echo "$1: $(streamfp select --method kcenter --features file.csv --ratio 0.67 --json)"; }
printf '0,0\n1,1\n9,9\n' >file.csv
far plain
printf '\xef\xbb\xbf0,0\n1,1\n9,9\n' >file.csv
far 'byte order mark'
printf '\xef\xbb\xbfx,y\r\n0,0\r\n1,1\r\n9,9\r\n' >file.csv
far 'byte order mark and heading'
printf '"0","0"\n"1"," 1 "\n"9",9\n' >file.csv
far quotes
printf '"x, in m";"the ""y"""\n0;0\n1;1\n9;9\n' >file.csv
far 'separators in a quoted heading'
printf ',x\n0,0\n1,1\n9,9\n' >file.csv
far 'heading with an empty cell'
printf '# x y\n0 0\n1 1\n9 9\n' >file.csv
far 'heading of another length'
