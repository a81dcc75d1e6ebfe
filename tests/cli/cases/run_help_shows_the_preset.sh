# the help and the manual page say which defaults preset best changes, and what each preset sets
one_line() { tr -s ' \n' ' '; }
streamfp run --help | one_line | grep -oE '\[[^][]*preset best: [^]]*\]'
streamfp run --help | one_line | grep -oE 'Values of [a-z]+: [^[]*'
streamfp help --man | tr -d '\\' | one_line | grep -oE 'Default: ([^ ]+; )?preset best: [a-z0-9.]+\.'
for command in predict eval; do streamfp $command --help | one_line | grep -oE '\[0; with a state[^]]*\]'; done
