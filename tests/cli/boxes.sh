#!/bin/bash
# Sets with boxes: the built-in one, COCO folders and their TFRecords as an independent program reads and writes them,
# what check says about them, and one sentence for everything that can be wrong with a COCO file.
. "$(dirname "$0")/support_common.sh"
narrow
python=$(command -v python3) || skip "python3 is missing"
tfrecord() { "$python" "$sources/tests/tools/tfrecord.py" "$@"; }

# ---- the built-in set ----
expect 0 "$convoy" dataset shapes data --boxes --train-images 12 --val-images 5 --image-size 64
expect_text err 'wrote 12 training and 5 validation images with boxes around objects of 4 classes'
expect 0 "$convoy" -q dataset shapes again --boxes --train-images 12 --val-images 5 --image-size 64 --threads 1
expect 0 diff -r data again
expect_sentence 2 '--train-images' "$convoy" dataset shapes more --train-images 3
expect_sentence 2 '--boxes' "$convoy" dataset shapes more --boxes --train-per-class 3
expect_sentence 2 '--classes' "$convoy" dataset shapes more --boxes --classes 11
expect_sentence 2 '64' "$convoy" dataset shapes more --boxes --image-size 32
expect_sentence 73 'not empty' "$convoy" dataset shapes data --boxes
expect_sentence 65 '"data/train" holds no class folders.* boxes take a detector \(--arch ssd320\)$' "$convoy" -q train data --arch resnet18

# ---- TFRecords: written by Convoy, and by others ----
expect 0 "$convoy" dataset tfrecord data records --train-shards 3
expect_text err 'wrote 12 training and 5 validation images of 4 classes to 3 and 1 file in'
expect 0 tfrecord check-boxes data records
expect_text out '^12 [0-9]+ 5 [0-9]+$'
expect 0 tfrecord write-boxes data theirs
cp -r records cut && : >cut/coco_train.record-00001-of-00003
expect 0 "$convoy" check cut
expect_text err '^convoy: warning: "cut/coco_train.record-00001-of-00003" holds no records \(1 such of 3 files\)$'
expect_sentence 2 'holds TFRecords already' "$convoy" -q dataset tfrecord records elsewhere
expect_sentence 2 '--val-split' "$convoy" -q dataset tfrecord data elsewhere --val-split 0.1
if [ -n "${CONVOY_TEST_DATA:-}" ] && ! sanitized; then
    expect 0 "$convoy" -q dataset tfrecord "$CONVOY_TEST_DATA/coco-tiny" tiny --train-shards 5 --val-shards 2
    expect 0 tfrecord check-boxes "$CONVOY_TEST_DATA/coco-tiny" tiny
    expect_text out '^24 294 24 302$'
fi

# Two categories of one name cannot be told apart in records.
cp -r data twice
sed -i -E 's/"(circle|square|triangle|star)"/"shape"/g' twice/annotations/*.json
expect_sentence 65 'two categories "shape", 1 and 2' "$convoy" -q dataset tfrecord twice elsewhere

# ---- benchmarks: as many scenes as a batch needs, however few there are ----
expect 0 "$convoy" -q bench infer --arch ssd320 --image-size 64 --num-classes 4 --batch-size 6 --warmup 1 --iterations 1 \
    --data data --format json
expect_text out '"batch_size": 6'

# ---- check ----
boxes=$(grep -o '"bbox"' data/annotations/instances_train.json | wc -l)
for set in data records theirs; do
    expect 0 "$convoy" check $set --format json
    expect_text out "\"train_images\": 12"
    expect_text out "\"boxes\": $boxes"
    # The other writer keeps no areas: sizes are those of the boxes.
    grep -vE '"(small|medium|large)"' out >$set.json
done
expect_same data.json records.json
expect_same data.json theirs.json
expect 0 "$convoy" check data
expect_text out "^all +12 +$boxes +5 "
expect_text out 'anchors of ssd320 for a box, images of 320 pixels: [1-9]'
expect_text out 'no problems found'
expect 0 "$convoy" check data/annotations/instances_val.json --format json
expect_text out '"train_images": 5'
# The anchors that another program finds, by the definition and in double precision.
same_anchors() { # SET SIZE
    expect 0 "$convoy" -q check "$1" --image-size "$2" --format json
    grep -oE '"(anchor_image_size|anchors_matched|below_half_overlap|without_anchor)": *[0-9]+' out | tr -d ' ' >found.txt
    expect 0 "$python" "$sources/tests/tools/match_boxes.py" "$2" "$1"/annotations/instances_{train,val}.json
    expect_same out found.txt
}
expect 0 "$convoy" -q dataset shapes some --boxes --train-images 8 --val-images 4 --image-size 75
same_anchors some 320
same_anchors some 160
expect_sentence 2 'a multiple of 32 pixels, 64 or more, not 100' "$convoy" -q check data --image-size 100
make_shapes folders 2 1
expect_sentence 2 'image-size is for sets with boxes' "$convoy" -q check folders --image-size 128

# ---- what can be wrong ----
cat >edit.py <<'END'
"""edit.py FILE CODE: change a COCO file (`d`; its first annotation is `a`) and write it back."""
import json, sys
d = json.load(open(sys.argv[1]))
a = d["annotations"][0]
exec(sys.argv[2])
json.dump(d, open(sys.argv[1], "w"))
END
json=broken/annotations/instances_train.json
broken() { # a copy of the set, changed by this code
    rm -rf broken
    cp -r data broken
    "$python" edit.py $json "$1"
}
refused() { # CODE PATTERN: the set is refused with one sentence that names the file
    broken "$1"
    expect_sentence 65 "instances_train.json.*$2" "$convoy" -q check broken
}
refused 'a["category_id"] = 99' 'near byte [0-9]+: an annotation is of an unknown category, 99'
refused 'a["image_id"] = 99' 'near byte [0-9]+: an annotation is of an unknown image, 99'
refused 'd["annotations"].append(a)' 'two annotations have the id 1'
refused 'd["images"].append(d["images"][0])' 'two images have the id 1'
refused 'd["categories"].append(d["categories"][0])' 'two categories have the id 1'
refused 'a["bbox"][0] = float("nan")' 'bad JSON near byte [0-9]+'
refused 'a["bbox"] = "all"' '"bbox" that is not a list of four numbers'
refused 'del a["bbox"]' 'an annotation has no "bbox"'
refused 'd["images"][0]["width"] = 0' '"width" that is not a number of pixels'
refused 'd["images"][0]["id"] = "one"' '"id" that is not a whole number'
refused 'del d["images"]' 'it has no list "images"'
refused 'd["images"] = []' 'names no images'
broken '' # with UTF-8's mark before it, as programs on Windows write it
printf '\xEF\xBB\xBF' | cat - $json >marked && mv marked $json
expect 0 "$convoy" -q check broken
broken ''
truncate_to $json 70
expect_sentence 65 'instances_train.json.*bad JSON near byte [0-9]+: .*premature EOF' "$convoy" -q check broken
echo 'none' >$json
expect_sentence 65 'instances_train.json.*bad JSON near byte' "$convoy" -q check broken
broken 'd["categories"][3]["name"] = "comet"'
expect_sentence 65 'instances_val.json.*category 4 is "[a-z]+", but "comet"' "$convoy" -q check broken

broken 'd["categories"][0]["id"] = -1; d["annotations"] = []'
"$python" edit.py broken/annotations/instances_val.json 'd["categories"][0]["id"] = -1; d["annotations"] = []'
expect_sentence 65 'instances_train.json.*category "[a-z]+" has the id -1, and records have none below 0' \
    "$convoy" -q dataset tfrecord broken elsewhere
checks=$((checks + 1))
[ ! -e elsewhere ] || fail "records of a set that was refused are there"

# ---- what is taken as it is, or left out ----
broken 'd["annotations"] = []'
expect 0 "$convoy" -q check broken --format json
expect_text out '"images_without_boxes": 12'
broken 'a["segmentation"] = {"counts": [1, 2], "size": [64, 64]}; a["iscrowd"] = 1; d["annotations"][1]["segmentation"] = [[1, 2, 3, 4, 5, 6]]'
expect 0 "$convoy" -q check broken --format json
expect_text out '"crowds": 1'
broken 'd["annotations"] += [dict(a, id=1000 + i) for i in range(1000)]'
expect 0 "$convoy" -q check broken --format json
expect_text out '"images_over_100_boxes": 1'
# A box twice, which gets no anchor; one that is too small for any, one that is too long.
broken 'd["annotations"] += [dict(a, id=900), dict(a, id=901, bbox=[1, 1, 2, 2]), dict(a, id=902, bbox=[0, 20, 60, 1])]'
same_anchors broken 160
expect_text out '"without_anchor":1'
broken 'a["bbox"] = [60, 60, 30, 30]; d["annotations"][1]["bbox"][2] = 0; d["annotations"][2]["bbox"] = [-90, 1, 20, 20]'
expect 0 "$convoy" check broken
expect_text out 'left out: 1 box without width or height, 2 beyond their images'
expect_text out 'problem: .*near byte [0-9]+: a box of image [0-9]+ reaches beyond the image \(60, 60, 30, 30\)'
expect_text err '1 box without width or height and 2 beyond their images are left out'
broken ''
rm broken/train/000003.jpg
echo 'no image' >broken/train/000004.jpg
expect 65 "$convoy" check broken
expect_text out 'problem: .*000003.jpg'
expect_text out 'problem: .*000004.jpg'
expect_text err '2 of 17 images'
# What of it is in the records is what is counted.
boxes=$("$python" -c 'import json; d = {p: json.load(open(f"broken/annotations/instances_{p}.json")) for p in ("train", "val")}
gone = {i["id"] for i in d["train"]["images"] if i["file_name"] in ("000003.jpg", "000004.jpg")}
print(sum(a["image_id"] not in gone for a in d["train"]["annotations"]) + len(d["val"]["annotations"]))')
expect 0 "$convoy" dataset tfrecord broken rest
expect_text err '^wrote 10 training and 5 validation images .*, 2 left out$'
expect_text err "^with $boxes boxes$"
expect 0 "$convoy" -q check rest --format json
expect_text out '"train_images": 10'
broken 'd["images"][0]["width"] += 1'
expect 0 "$convoy" check broken
expect_text out 'problem: .*000001.jpg.*but its boxes are for'
mkdir nothing && mkdir nothing/annotations
expect_sentence 66 'nothing' "$convoy" -q train nothing
finish
