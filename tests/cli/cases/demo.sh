streamfp demo --out sheet.png
head -c 4 sheet.png | tail -c 3
