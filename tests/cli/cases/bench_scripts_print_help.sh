# help works in every directory, and before the scripts search for any file
bench=$(dirname "$0")/../../../bench
for name in pacs compare_torch select; do
    for option in --help -h; do
        "$bench/$name" $option >out
        echo "$name $option: exit $?"
        sed -n "s,^  bench/$name .*,usage,p" out
        if grep '^#\|^set' out; then echo 'more than the text'; fi
    done
done
