mkfile vit tiny.safetensors 1 10
mkdir images
mkfile image images/good.png 40 40 1
mkfile jpeg images/good.jpg 40 40 2
head -c 60 images/good.png >images/cut.png
head -c 200 images/good.jpg >images/cut.jpg
printf 'RIFF\020\000\000\000WEBPVP8 none' >images/broken.webp
echo 'no image' >images/text.jpg
: >images/empty.png
streamfp predict --backbone tiny.safetensors --topk 1 images
