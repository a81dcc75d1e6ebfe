replica domain d --each 3
streamfp data describe folder:d --tasks domain:winter,spring
echo "--- broken images, a sheet"
images=(d/autumn/arrow/*)
: >"${images[0]}"
echo "not an image" >"${images[1]}"
streamfp data describe folder:d --sheet sheet.png | head -14
mkdir one
cp sheet.png one/
mkdir classes && mv one classes/
echo "--- the sheet is an image with one row per class"
streamfp data describe folder:classes | grep -E '^(sample|width|height)'
echo "--- json"
streamfp data describe folder:d --tasks 5,5 --sheet sheet.png --json
