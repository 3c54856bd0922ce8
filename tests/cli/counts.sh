#!/bin/bash
# Numbers in sentences: one image, not 1 images.
. "$(dirname "$0")/support_common.sh"
narrow
expect 0 "$convoy" dataset shapes data --train-per-class 2 --val-per-class 1 --image-size 40
expect_text err '^wrote 10 classes with 2 training and 1 validation image each to "data"$'
expect 0 "$convoy" dataset shapes boxes --boxes --train-images 2 --val-images 1 --classes 1 --image-size 96
expect_text err '^wrote 2 training and 1 validation image with boxes around objects of 1 class to "boxes"$'
mkdir -p one/train one/val
class=$(ls data/train | head -n 1)
for part in train val; do
    mkdir one/$part/"$class"
    cp "$(find data/$part/"$class" -name '*.jpg' | head -n 1)" one/$part/"$class"/
done
expect 0 "$convoy" check one
expect_text out '^1 class; shorter side of the images'
expect 0 "$convoy" dataset tfrecord one records
expect_text err '^wrote 1 training and 1 validation image of 1 class to 1 and 1 file in "records"; 0 were made JPEGs, 0 left out$'
expect 0 "$convoy" dataset index records indexes
expect_text err '^wrote the indexes of 2 files with 2 records to "indexes"$'
expect 0 "$convoy" dataset pack one packed
expect_text err '^wrote 1 training and 1 validation image of 1 class to 1 and 1 file in "packed" \([0-9.]+ MiB\); 0 were encoded anew, 0 left out$'
expect 0 tiny_train data --epochs 1 --prof 1 --threads 1 --workers 1 --workspace run
expect_text out '^1 epoch, 1 step in '
expect 0 tiny_train data --epochs 2 --prof 2 --training-only --no-checkpoints --workspace runs
expect_text out '^2 epochs, 4 steps in '
expect 0 "$convoy" info --threads 1 --plan run
expect_text out '^plan +inference of 1 image, .* 1 thread: [0-9]+ steps$'
expect 2 "$convoy" -q train one --arch resnet18 --image-size 32 --batch-size 8 --lr 0.1
expect_text err 'the training set has only 1 image$'
finish
