# every command and every option of the help is in the manual page
streamfp help --man >man.1
head -1 man.1
for command in $(streamfp --help | sed -n '/^Programs/q; s/^  \([a-z]*\) .*/\1/p'); do
    grep -q "^\.SS \"streamfp $command" man.1 || echo "no $command"
    for option in $(streamfp "$command" --help | sed -n 's/^  --\([a-z0-9-]*\).*/\1/p'); do
        [ "$option" = help ] || grep -qF -- "\\-\\-${option//-/\\-}\\fR" man.1 || echo "no --$option of $command"
    done
done
for program in $(streamfp --help | sed -n '/^Programs/,$ s/^  \([a-z]*\) .*/\1/p'); do grep -x "$program" man.1; done
if command -v groff >/dev/null; then groff -man -ww -Tutf8 man.1 >/dev/null; fi
grep -cx '\\fBEvaluation and output\\fR' man.1
grep -c 'One of streamfp, none, random' man.1 # run and bench
