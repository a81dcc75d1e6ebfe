mkfile vit tiny.safetensors 1 10
mkfile image a.png 50 40 3
for line in 'a.png,10' 'a.png,-1' 'a.png,cat' 'a.png' '"a.png,1' ',3' ''; do
    printf 'file,label\n# a comment\n%s\n' "$line" >labels.csv
    streamfp predict --backbone tiny.safetensors --eval labels.csv
    echo "exit $?" >&2
done
