# invalid configuration files are refused with the line
try() {
    printf '%b' "$1" >options.yaml
    streamfp run --config options.yaml --out nowhere/x 2>&1 >/dev/null | grep -v 'stands in' | head -n 1
}
try '- batch\n- 5\n'
try 'batch: 5\neval-limit: many\n'
try 'batch: {of: 5}\n'
try 'tasks: [[1], 2]\n'
try '? [batch]\n: 5\n'
try '"batch\\0": 5\n'
try 'data: "folder:a\\0b"\n'
try 'tasks: [1, "2\\0"]\n'
try 'set: batch=5\n'
try 'batch: 5\nconfig: other.yaml\n'
try '"\\e[31m": 5\n'
try 'batch: *five\n'
try 'data: \0377\n'
try 'batch: 5\nsigma: half\n'
try 'rate: fast\n'
try 'select: best\n'
try 'batch: 5\nsigma: 0.5\nbatch: 6\n'
try 'eval-limit: 5\neval_limit: 6\n'
try 'batch: 5\n---\nbatch: 6\n'
try 'batch: 5\n...\n]\n'
echo "nested collections:"
try 'tasks: [[[[[[[1]]]]]]]\n'
try 'batch: 5\ntasks: [[[[[[[[1]]]]]]]]\n'
brackets=$(printf '%*s' 100000 '')
try "${brackets// /[}" # at once: the time of the parser grows with the square of the depth
echo "a large file:"
try "batch: 5\n#${brackets}${brackets}${brackets}\n"
