# headings, the names that options accept, and how to turn off a switch
streamfp run --help | grep '^[A-Z][A-Za-z ]*:$'
streamfp run --help | grep -A 1 -e '--select NAME' -e '--method NAME' -e '--attune \[on' -e '--weighted'
streamfp run --help | grep 'turn it off'
streamfp run --no-attune --no-such 2>&1 | head -n 1
streamfp bench --help | tail -n 2
