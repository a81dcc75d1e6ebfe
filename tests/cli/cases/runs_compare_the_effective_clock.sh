# A clock that was not given follows from the rate and the stream: to give it explicitly makes no difference.
result() { write_result "$1" 2025-01-01T00:00:00Z 1 "$2" "$3" 0.9; } # DIR DATA CONFIG
number=0
pair() { # WHAT DATA MORE DATA MORE
    number=$((number + 1))
    result a$number "$2" "$3"
    result b$number "$4" "$5"
    echo "--- $1"
    streamfp runs compare a$number b$number --json | grep -o '"options_that_differ":{[^}]*}'
}
max=', "rate": "max"' rated=', "rate": "400"'
clock() { echo ", \"clock\": \"$1\""; }
echo "the same:"
pair "virtual, with a rate" synthetic:90 "$rated" synthetic:90 "$rated$(clock virtual)"
pair "off, without one" synthetic:90 "$max$(clock off)" synthetic:90 "$max"
for data in dir:in stdin synthetic:0; do pair "real, $data with a rate" $data "$rated" $data "$rated$(clock real)"; done
pair "off, live without a rate" dir:in "$max" dir:in "$max$(clock off)"
echo "not the same:"
pair "paper" synthetic:90 "$rated" synthetic:90 "$rated$(clock paper)"
pair "off" synthetic:90 "$rated$(clock off)" synthetic:90 "$rated"
pair "live" dir:in "$max" dir:in "$max$(clock real)"
pair "no stream without end" synthetic:90 "$rated" synthetic:90 "$rated$(clock real)"
