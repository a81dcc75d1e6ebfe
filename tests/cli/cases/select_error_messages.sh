printf '1,2\n3,4\n5,6\n' >f.csv
printf '0\n1\n0\n' >y.csv
printf '0.5,0.5\n0.5,0.5\n0.5,0.5\n' >p.csv
try() { streamfp select "$@" >/dev/null; echo "exit $?" >&2; }
try --method kcenter --ratio 0.5
try --features f.csv --ratio 0.5
try --method kcenter --features f.csv
try --method camel --features f.csv --ratio 0.5
try --method craig --features f.csv --labels y.csv --ratio 0.5
try --method best --features f.csv --ratio 0.5
try --method kcenter --features f.csv --ratio 0
try --method kcenter --features none.npy --ratio 0.5
printf '0\n1\n' >short.csv
try --method camel --features f.csv --labels short.csv --ratio 0.5
printf '0\n1\n2\n' >y2.csv
try --method craig --features f.csv --labels y2.csv --probs p.csv --ratio 0.5
printf '0.5,0.5\n0.25,0.75\n3,-2\n' >logits.csv
try --method craig --features f.csv --labels y.csv --probs logits.csv --ratio 0.5
try --method kcenter --features f.csv --ratio 0.5 --distance euclidean
printf '0\n1.5\n0\n' >y3.csv
try --method camel --features f.csv --labels y3.csv --ratio 0.5
try --method camel --features f.csv --labels p.csv --ratio 0.5
printf '1,2\n3,four\n' >word.csv
try --method kcenter --features word.csv --ratio 0.5
printf '1,2\n3\n' >ragged.csv
try --method kcenter --features ragged.csv --ratio 0.5
cell() { # TEXT: a file that must be refused as ambiguous
    printf '%b' "$1" >cell.csv
    try --method kcenter --features cell.csv --ratio 1
}
cell 'x,1,2\n3,4,5\n'
cell '1,x,2\n3,4,5\n'
cell ',0,1\n0,3,4\n'
cell 'x\ny\n1\n'
cell '1,0,\n,2,7\n'
cell 'a,b,c\n1,,3\n'
cell '1,2\n3,""\n'
cell '1;2\n;\n'
cell ',,\n1,2,3\n'
cell '1;2\n3,5;4,5\n'
cell '1,5 2,5\n'
cell '1,2\n3,"4,5"\n'
cell '1,2\n3,"4\n'
cell '1,2\r3,4\r'
printf 'a,b\n' >heading.csv
try --method kcenter --features heading.csv --ratio 0.5
printf '1,2\n\0\0\n' >bytes.csv
try --method kcenter --features bytes.csv --ratio 0.5
: >empty.csv
try --method kcenter --features empty.csv --ratio 0.5
printf 'no array' >f.npy
try --method kcenter --features f.npy --ratio 0.5
mkfile vit tiny.safetensors 1 10
try --method kcenter --features tiny.safetensors --ratio 0.5
try --method kcenter --features tiny.safetensors:no.such --ratio 0.5
try --method kcenter --features tiny.safetensors:pos_embed --ratio 0.5
npy() { printf "\\x93NUMPY\\x01\\x00\\x76\\x00%-117s\\n" "{'descr': '<f4', 'fortran_order': False, 'shape': $1, }"; }
npy '(0, 5)' >rows.npy
try --method kcenter --features rows.npy --ratio 0.5
npy '(5, 0)' >columns.npy
try --method kcenter --features columns.npy --ratio 0.5
