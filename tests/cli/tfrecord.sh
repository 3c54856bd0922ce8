#!/bin/bash
# TFRecords: what Convoy writes is read by an independent program and the reverse; training, resuming, evaluating and
# checking over them is the same as over the folder; damage is named.
. "$(dirname "$0")/support_common.sh"
narrow
python=$(command -v python3) || skip "python3 is missing"
tfrecord() { "$python" "$sources/tests/tools/tfrecord.py" "$@"; }
make_shapes data 4 3

# ---- written by Convoy ----
expect 0 "$convoy" dataset tfrecord data records --train-shards 3 --val-shards 2
expect_text err 'wrote 40 training and 30 validation images of 10 classes to 3 and 2 files'
expect 0 "$convoy" -q dataset index records idx
expect 0 tfrecord check data records idx
expect_text out '^40 30$'
expect 0 "$convoy" -q dataset tfrecord data again --train-shards 3 --val-shards 2 --threads 1
expect 0 diff -r records again
expect 0 "$convoy" -q dataset tfrecord data kept --train-shards 3 --keep-order
expect 0 tfrecord check data kept
expect 73 "$convoy" dataset tfrecord data records
# ImageNet's boxes: of some files, several of one, in any order of the lines.
printf '%s\n' 000001.jpg,0.25,0.1,0.75,1.0000 nobody.JPEG,0,0,1,1 000000.jpg,0.006,0.262,0.7545,0.994 000001.jpg,0,0,0.5,0.5 >boxes.csv
expect 0 "$convoy" dataset tfrecord data boxed --boxes boxes.csv
expect_text err '^with 60 boxes$' # files of the same name in ten classes, of both parts
expect 0 "$convoy" -q dataset index boxed boxed-idx
expect 0 tfrecord check data boxed boxed-idx boxes.csv
expect 0 "$convoy" -q check boxed
for line in 000001.jpg,0,0,1 000001.jpg,0,0,1,1.5 000001.jpg,0.5,0,0.25,1 ,0,0,1,1 000001.jpg,0,0,1,1,1 a,0,b,1,1; do
    printf 'x.jpg,0,0,1,1\r\n\n%s\n' $line >bad.csv
    expect_sentence 65 'line 3 of "bad.csv" is not' "$convoy" dataset tfrecord data bad --boxes bad.csv
done
expect_sentence 66 'none.csv' "$convoy" dataset tfrecord data bad --boxes none.csv
# The same boxes as ImageNet publishes them: beyond the edges, in any order, some without area, or of another class.
xml() { # FILE, then NAME XMIN YMIN XMAX YMAX of each object
    printf '<annotation><filename>x</filename><size><width>10000</width><height>5000</height><depth>3</depth></size>' >"$1"
    local file=$1
    shift
    for object in "$@"; do
        # shellcheck disable=SC2086 # words
        set -- $object
        printf '\n<object>\n\t<name>%s</name><bndbox>\n<xmin>%s</xmin><ymin>%s</ymin><xmax>%s</xmax><ymax>%s</ymax></bndbox></object>' "$@"
    done >>"$file"
    echo '</annotation>' >>"$file"
}
for class in data/train/*; do
    class=${class##*/}
    mkdir -p "xml/$class"
    [ "$class" = circle ] && other=star || other=circle
    xml "xml/$class/000000.xml" "$class 60 1310 7545 4970"
    xml "xml/$class/000001.xml" "$class 7500 5000.4 2500 500" "a_word -7 0 5000 2500" "$other 0 0 100 100" "$class 40 50 40 70"
done
expect 0 "$convoy" dataset tfrecord data boxed-xml --boxes xml
expect_text err '^with 60 boxes$'
expect 0 diff -r boxed boxed-xml
for damage in 's/<width>10000//' 's/<width>10000/<width>0/' 's/<xmax>7545/<xmax>x/' 's/<.object>//' 's/<ymin>1310/<ymin>nan/'; do
    sed "$damage" xml/circle/000000.xml >damaged.xml
    cp damaged.xml xml/arrow/000000.xml
    rm -rf hurt
    expect 0 "$convoy" dataset tfrecord data hurt --boxes xml
    expect_text err '"xml/arrow/000000.xml" has no boxes as ImageNet.s files have them; its boxes are left out'
    expect_text err '^with 58 boxes$'
done
# Those of the validation lie in one folder there.
rm -r xml/*
mkdir xml/val
xml xml/val/000002.xml "a_word 0 0 10 10"
expect 0 "$convoy" dataset tfrecord data boxed-val --boxes xml
expect_text err '^with 20 boxes$'
checks=$((checks + 1))
[ ! -e bad ] || [ -z "$(ls bad)" ] || fail "a refused set left files"
expect 2 "$convoy" dataset tfrecord records elsewhere
expect 2 "$convoy" dataset tfrecord data elsewhere --val-shards 31
expect 2 "$convoy" dataset index records records

# ---- written by others ----
expect 0 tfrecord write data theirs

# ---- the same training, checking and evaluation ----
expect 0 tiny_train data --epochs 2 --workspace folder
expect 0 tiny_train theirs --epochs 2 --run-epochs 1 --workspace others
expect 0 "$convoy" -q train --resume others --run-epochs 1
expect_same folder/checkpoint.safetensors others/checkpoint.safetensors
if ! sanitized; then # what is left out there is slow, and reads no other bytes
    expect 0 "$convoy" -q dataset index kept kept-idx
    expect 0 tiny_train kept --data-idx-dir kept-idx --epochs 2 --workspace kept-run
    expect_same folder/checkpoint.safetensors kept-run/checkpoint.safetensors
fi
weights=folder/checkpoint.safetensors
for set in data theirs records; do
    expect 0 "$convoy" -q evaluate $set --weights $weights --format json
    grep -vE 'images_per_second|latency_ms' out >$set.json
    expect 0 "$convoy" check $set --format json
    cp out $set.check
done
expect_same data.check theirs.check
expect_same data.check records.check
expect_same data.json theirs.json
expect 0 "$convoy" bench data records --seconds 0.1

# TensorFlow's programs have an output more than there are classes.
if ! sanitized; then
    expect 0 tiny_train records --num-classes 11 --epochs 1 --workspace more
    expect 0 "$convoy" -q evaluate records --weights more/checkpoint.safetensors
    expect 0 "$convoy" classify data/val/*/000000.jpg --weights more/checkpoint.safetensors --topk 11 --format json
    expect_text out '"index": 10, "class": null'
fi

# ---- TensorFlow's preprocessing ----
tensorflow_train() { tiny_train "$@" --data-backend tensorflow; }
expect 0 tensorflow_train theirs --mixup 0.2 --epochs 2 --workspace tf
expect 0 tensorflow_train theirs --mixup 0.2 --epochs 2 --run-epochs 1 --workspace tf-half
expect 0 "$convoy" -q train --resume tf-half --run-epochs 1
expect_same tf/checkpoint.safetensors tf-half/checkpoint.safetensors
weights=tf/checkpoint.safetensors
expect 0 grep -q '"data_backend' $weights
for set in data theirs; do
    expect 0 "$convoy" -q evaluate $set --weights $weights --format json
    grep -vE 'images_per_second|latency_ms' out >$set.json
done
expect_same data.json theirs.json
expect 0 "$convoy" classify data/val/*/000000.jpg --weights $weights
expect 0 "$convoy" convert $weights plain.onnx
if ! sanitized; then
    expect 0 "$convoy" train theirs --pretrained-weights $weights --epochs 1 --prof 1 --image-size 32 --batch-size 10 --workspace fine
    expect_text err 'weights .* data-backend tensorflow'
fi
sanitized || expect 0 tensorflow_train theirs --device check:cpu --mixup 0.2 --epochs 1 --prof 1 --workspace checked
sanitized || without_bf16 || expect 0 tensorflow_train theirs --precision bf16 --epochs 1 --prof 1 --workspace narrow
expect 2 tensorflow_train theirs --device ref --precision fp64 --epochs 1 --workspace none
expect_text err 'fp64 is not possible with .*--data-backend tensorflow'
expect 2 tensorflow_train theirs --augmentation autoaugment --epochs 1 --workspace none

# ---- damage ----
cp -r records damaged
printf x | dd of=damaged/train-00001-of-00003 bs=1 seek=700 conv=notrunc 2>/dev/null
expect 65 "$convoy" check damaged
expect_text out 'problem: the record at byte 0 of "damaged/train-00001-of-00003" is damaged: its checksum is wrong'
expect 0 tiny_train damaged --epochs 1 --workspace with-damage
expect_text err 'its checksum is wrong; another image takes its place'
# A file that was cut to nothing holds no record, which is no error; an index that was is another file's.
: >damaged/train-00001-of-00003
expect 0 "$convoy" check damaged
expect_text err '^convoy: warning: "damaged/train-00001-of-00003" holds no records \(1 such of 3 files\)$'
cp -r idx cut-idx && : >cut-idx/train-00001-of-00003
expect_sentence 65 'cut-idx/train-00001-of-00003" is not that of "records/train-00001-of-00003": they end at different' \
    tiny_train records --data-idx-dir cut-idx --workspace none
mkdir no_training && cp records/validation-* no_training
expect_sentence 66 '"no_training" has files validation-\* for validation, but no files train-\* to train on' \
    "$convoy" -q train no_training
rm damaged/train-00001-of-00003
expect 65 tiny_train damaged --workspace none
expect_text err 'holds 2 files like "damaged/train-00000-of-00003", and their names say that there are 3'
expect 2 tiny_train data --data-idx-dir idx --workspace none
expect_text err 'holds no TFRecords'
expect 66 tiny_train records --data-idx-dir nowhere --workspace none
expect_text err 'nowhere/train-0000'
finish
