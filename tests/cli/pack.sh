#!/bin/bash
# Packed data sets: the same training, evaluation and check as over the folder; a packing that was killed continues; damage
# is named with the right exit code.
. "$(dirname "$0")/support_common.sh"
narrow
make_shapes data 4 3

# ---- the same run ----
expect 0 "$convoy" dataset pack data packed --train-shards 4 --val-shards 2
expect_text err 'wrote 40 training and 30 validation images of 10 classes to 4 and 2 files'
expect 0 tiny_train data --epochs 2 --workspace folder
expect 0 tiny_train packed --epochs 2 --run-epochs 1 --workspace run
expect 0 "$convoy" -q train --resume run --run-epochs 1
expect_same folder/checkpoint.safetensors run/checkpoint.safetensors
weights=folder/checkpoint.safetensors
for set in data packed; do
    expect 0 "$convoy" -q evaluate $set --weights $weights --format json
    grep -vE 'images_per_second|latency_ms' out >$set.json
    expect 0 "$convoy" check $set --format json
    cp out $set.check
done
expect_same data.json packed.json
expect_same data.check packed.check
expect 0 "$convoy" bench data packed --seconds 0.1
expect 0 "$convoy" bench data packed --split val --seconds 0.1

# ---- kept in memory ----
expect 0 "$convoy" train packed --arch resnet18 --image-size 32 --batch-size 10 --lr 0.02 --workers 2 --epochs 2 --ram-cache --workspace cached
expect_text err '^convoy: --ram-cache: the images take 0.00 GiB of memory, of which'
expect_text err '^convoy: --ram-cache: 70 of 70 images are in memory now, 0.00 GiB$'
[ "$(grep -c 'are in memory now' err)" = 1 ] || fail "what is kept is not said once"
expect_same folder/checkpoint.safetensors cached/checkpoint.safetensors
mkdir -p huge/train/a huge/train/b
for class in a b; do cp data/train/ring/*.jpg huge/train/$class/; done
truncate -s 4T huge/train/b/large.jpg # takes no room on the disk
expect_sentence 71 'option --ram-cache: the images take 4096.00 GiB, and [0-9.]+ GiB of memory are free' \
    tiny_train huge --val-split 0.5 --ram-cache --workspace none
mkdir huge/val && cp -r data/val/ring huge/val/a && cp -r data/val/ring huge/val/b
expect 0 tiny_train huge --ram-cache --evaluate # what is not read takes no memory

# ---- smaller, and raw ----
expect 0 "$convoy" dataset pack data small --shorter-side 34 --quality 85
expect_text err '; 70 were encoded anew'
expect 0 "$convoy" check small --format json
expect_text out '"max_side": 34'
expect_text out '"tiny": \[\]'
expect 0 "$convoy" -q dataset pack data tiny --shorter-side 20 --train-shards 1 --val-shards 1
expect 0 "$convoy" check tiny
expect_text out '^tiny: 70 images have a side of less than 32 pixels:$'
expect_text out '^    "tiny/train-00000-of-00001.pack@48"$'
[ "$(grep -c '^    "tiny/' out)" = 70 ] || fail "not all of the tiny images are named"
if ! sanitized; then
    expect 0 "$convoy" -q dataset pack data raw --raw
    expect 0 tiny_train raw --epochs 2 --workspace raw-run
    expect_same folder/checkpoint.safetensors raw-run/checkpoint.safetensors
    expect 0 "$convoy" -q dataset tfrecord data records --keep-order
    expect 0 "$convoy" -q dataset pack records from-records --train-shards 4 --val-shards 2
    expect 0 "$convoy" check from-records --format json
    expect_same data.check out
fi

# ---- without a part for validation ----
expect 0 "$convoy" dataset pack data/train alone
expect_text err 'no part for validation: train with --val-split'
expect 66 tiny_train alone --workspace none
expect_text err 'has no files val-\*\.pack \(--val-split'
expect 0 tiny_train alone --val-split 0.3 --epochs 1 --workspace split

# ---- killed and begun again ----
for attempt in 1 2 3; do
    (exec "$convoy" -q dataset pack data killed --train-shards 40 --val-shards 30 --threads 1) &
    process=$!
    for ((i = 0; i < 2000; i++)); do
        [ -e killed/train-00003-of-00040.pack ] && break
        sleep 0.005
    done
    kill -9 $process 2>/dev/null
    wait $process 2>/dev/null
    there=$(find killed -name '*.pack' | wc -l)
    [ "$there" -lt 70 ] && break
    rm -rf killed
done
expect 0 test "$there" -gt 3 -a "$there" -lt 70
expect 0 "$convoy" dataset pack data killed --train-shards 40 --val-shards 30
expect_text err "$there of 70 files are there already and stay"
expect 0 "$convoy" -q dataset pack data whole --train-shards 40 --val-shards 30
expect 0 diff -r whole killed
expect 0 "$convoy" dataset pack data killed --train-shards 40 --val-shards 30
expect_text err '70 of 70 files are there already and stay'

# ---- refused ----
expect_sentence 73 'with other options' "$convoy" -q dataset pack data packed --train-shards 4 --val-shards 2 --shorter-side 20
expect_sentence 73 'is not empty' "$convoy" -q dataset pack data packed --train-shards 3
expect_sentence 73 'is not empty: "(train|val)"' "$convoy" -q dataset pack data data
expect_sentence 2 'quality needs --shorter-side' "$convoy" -q dataset pack data new --quality 80
expect_sentence 2 'has files val-\*\.pack' tiny_train packed --val-split 0.1 --workspace none
expect_sentence 2 'holds no TFRecords' tiny_train packed --data-idx-dir data --workspace none
"$convoy" -q dataset shapes boxes --boxes --train-images 3 --val-images 2 --image-size 64
expect_sentence 2 'has boxes, which packed data sets do not hold' "$convoy" -q dataset pack boxes new

# ---- damage ----
break_byte() { # FILE OFFSET: another value there
    printf '\377' | dd of="$1" bs=1 seek="$2" conv=notrunc 2>/dev/null
}
last=packed/train-00003-of-00004.pack
size=$(stat -c %s $last)
cp $last whole.pack
break_byte $last 400
expect 65 "$convoy" check packed
expect_text out 'problem: the record at byte [0-9]+ of "packed/train-00003.*is damaged: its checksum is wrong'
expect 0 tiny_train packed --epochs 1 --workspace damaged
expect_text err 'its checksum is wrong; another image takes its place'
cp whole.pack $last && break_byte $last $((size - 60))
expect_sentence 65 'the index of "packed/train-00003-of-00004.pack" is damaged' tiny_train packed --workspace none
cp whole.pack $last && break_byte $last 8
expect_sentence 65 'is of version 255 of packed data sets' tiny_train packed --workspace none
cp whole.pack $last && truncate -s $((size - 1)) $last
expect_sentence 65 'is truncated: it does not end with an index' tiny_train packed --workspace none
rm $last
expect_sentence 65 'holds 3 files like .*number 3 is not in its place' tiny_train packed --workspace none
finish
