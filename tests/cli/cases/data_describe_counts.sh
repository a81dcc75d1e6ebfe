replica domain d --each 3
streamfp data describe folder:d --tasks domain:winter,spring
echo "--- broken pictures, a sheet"
pictures=(d/autumn/arrow/*)
: >"${pictures[0]}"
echo "not a picture" >"${pictures[1]}"
streamfp data describe folder:d --sheet sheet.png | head -14
mkdir one
cp sheet.png one/
mkdir classes && mv one classes/
echo "--- the sheet is a picture of a row a class"
streamfp data describe folder:classes | grep -E '^(sample|width|height)'
echo "--- json"
streamfp data describe folder:d --tasks 5,5 --sheet sheet.png --json
