mkfile vit tiny.safetensors 1 10
mkdir pictures
mkfile picture pictures/good.png 40 40 1
mkfile jpeg pictures/good.jpg 40 40 2
head -c 60 pictures/good.png >pictures/cut.png
head -c 200 pictures/good.jpg >pictures/cut.jpg
printf 'RIFF\020\000\000\000WEBPVP8 none' >pictures/broken.webp
echo 'no picture' >pictures/text.jpg
: >pictures/empty.png
streamfp predict --backbone tiny.safetensors --topk 1 pictures
