# The test part is split like the training part; novelty classes are excluded and reported.
replica stream51 s
streamfp data describe stream51:s --part test | sed -n '1,10p;/^task /,$p'
streamfp data describe stream51:s --sheet sheet.png | grep -E '^(sheet|disc-6|arrow-2|disc-4|stripes-3)'
echo "--- without its training part"
replica idx i
rm i/train-*
streamfp data describe idx:i --test --tasks 2 | grep -E '^(images|tasks)'
