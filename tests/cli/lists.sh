#!/bin/bash
# Lists of images in place of folders: the same training, resumed, evaluated, checked; bad ones refused in a sentence.
. "$(dirname "$0")/support_common.sh"
narrow
make_shapes data 3 2

# list PART [PREFIX]: the images of data/PART with the names of their classes; PREFIX goes before the paths.
list() {
    (cd data && find "$1" -name '*.jpg' | sort -r | awk -F/ -v before="${2:-}" '{print before $0 "\t" $2}')
}
list train >data/train.tsv
mkdir elsewhere
list val ../data/ >elsewhere/val.tsv

# ---- training ----
options="--sampler balanced --augmentation autoaugment" # in the checkpoint, so that resuming knows them
# shellcheck disable=SC2086
expect 0 tiny_train data --epochs 2 --workspace folders $options
# shellcheck disable=SC2086
expect 0 tiny_train --train-list data/train.tsv --val-list elsewhere/val.tsv --epochs 2 --run-epochs 1 \
    --workspace lists $options
cd elsewhere || exit 1 # it knows its lists from anywhere
expect 0 "$convoy" -q train --resume ../lists --run-epochs 1
cd "$work" || exit 1
expect_same folders/checkpoint.safetensors lists/checkpoint.safetensors
expect_same folders/metrics.csv lists/metrics.csv

# ---- evaluating, checking ----
weights=lists/checkpoint.safetensors
expect 0 "$convoy" -q evaluate data --weights $weights --format json
cp out folder.json
expect 0 "$convoy" -q evaluate elsewhere/val.tsv --weights $weights --format json
expect_same <(grep -vE 'images_per_second|latency_ms' folder.json) <(grep -vE 'images_per_second|latency_ms' out)
expect 0 "$convoy" check data --format json
cp out folder.json
expect 0 "$convoy" check data/train.tsv --val-list elsewhere/val.tsv --format json
expect_same folder.json out

# A split of a list is that of the folder, in `evaluate` too; another list is taken as it is.
expect 0 tiny_train data/train.tsv --val-split 0.3 --epochs 1 --prof 1 --workspace split
expect 0 "$convoy" evaluate data/train.tsv --weights split/checkpoint.safetensors
expect_text out 'images 10 '
expect_text err 'set aside'
expect 0 "$convoy" evaluate elsewhere/val.tsv --weights split/checkpoint.safetensors
expect_text out 'images 20 '

# ---- numbers for classes, some left out ----
awk -F'\t' '{print $1 "\t" (NR % 2) * 3}' data/train.tsv >data/numbers.tsv
expect 0 tiny_train data/numbers.tsv --training-only --epochs 1 --prof 1 --no-checkpoints --workspace numbers
expect_text err '2 of 4 classes have no training images: class 1 '

# ---- classes of very different sizes ----
awk -F'\t' '{print $1 "\t" (NR == 7 ? "few" : "many")}' data/train.tsv >data/uneven.tsv
expect 0 "$convoy" -q check data/uneven.tsv
expect_text out '29 training images of "many", 1 of "few" \(29.0 times as many\): .*--sampler balanced'
expect 0 "$convoy" -q check data/train.tsv
if grep -q unbalanced out; then fail "3 images of each class are called unbalanced"; fi

# ---- one class alone: nothing to tell apart ----
awk -F'\t' '{print $1 "\tall"}' data/train.tsv >data/one.tsv
expect 0 tiny_train data/one.tsv --training-only --epochs 1 --prof 1 --no-checkpoints --workspace one
expect_text err '^convoy: warning: "data/one.tsv" has one class, "all", for which every image will be taken'
expect 0 "$convoy" -q check data/one.tsv
expect_text out '^one class: '

# ---- ImageNet's validation images, without folders and with their classes in a file of their own ----
mkdir flat flat/val
for file in data/val/*/*.jpg; do cp "$file" "flat/val/${file//\//_}"; done
find data/val -name '*.jpg' | sort | awk -F/ '{print $3}' >labels.txt
cp -r data/train flat/train
expect_sentence 65 '"flat/val" holds no class folders, but images: a list ' tiny_train flat
paste <(find flat/val -name '*.jpg' | sort) labels.txt >flat.list
# shellcheck disable=SC2086
expect 0 tiny_train flat/train --val-list flat.list --epochs 2 --workspace flat_run $options
cut -d, -f3 folders/metrics.csv >losses
cut -d, -f3 flat_run/metrics.csv >flat_losses
expect_same losses flat_losses

# ---- refused ----
printf 'a.jpg\tcircle\nb.jpg circle\n' >bad.tsv
expect_sentence 65 'line 2 of "bad.tsv" has no tab' tiny_train bad.tsv --val-split 0.5
expect_sentence 65 'line 2 of "bad.tsv" has no tab' "$convoy" -q check bad.tsv
expect_sentence 65 'line 2 of "bad.tsv" has no tab' tiny_train data --val-list bad.tsv
expect_sentence 66 'val-list' tiny_train data/train.tsv
expect_sentence 66 'nowhere.tsv' tiny_train --train-list nowhere.tsv --val-split 0.5
expect_sentence 2 'train-list' tiny_train data --train-list data/train.tsv
expect_sentence 2 'val-split and --val-list' tiny_train data/train.tsv --val-list elsewhere/val.tsv --val-split 0.5
finish
