#!/bin/bash
# convoy detect: its formats, the copies it draws, and what it refuses.
. "$(dirname "$0")/support_common.sh"
narrow
expect 0 "$convoy" -q dataset shapes data --boxes --train-images 2 --val-images 3 --image-size 96 --classes 3
expect 0 "$convoy" -q train data --arch ssd320 --image-size 64 --batch-size 2 --steps 2 --warmup-steps 1 --lr 0.002 \
    --warmup-lr 0.001 --workspace run
weights=run/checkpoint.safetensors
detect() { "$convoy" -q detect --weights $weights "$@"; }
mkdir -p photos/sub
images=(data/val/*.jpg)
cp "${images[0]}" photos/17.jpg
cp "${images[1]}" photos/sub/018.jpg
write_png photos/19.png

# ---- formats; a network of two steps finds something everywhere, though not much that is right ----
expect 0 detect photos --threshold 0 --format csv
cp out all.csv
expect_text out '^file,rank,class_id,class,score,x,y,width,height$'
expect_text out '^photos/17.jpg,1,[1-3],[a-z]+,0\.[0-9]+,[0-9.]+,[0-9.]+,[0-9.]+,[0-9.]+$'
checks=$((checks + 1))
awk -F, 'NR > 1 { n++; w = $1 ~ /png/ ? 48 : 96; h = $1 ~ /png/ ? 40 : 96
    if ($2 > 1 && $5 > before) bad++; before = $5
    if ($6 < 0 || $7 < 0 || $8 <= 0 || $9 <= 0 || $6 + $8 > w + 1e-3 || $7 + $9 > h + 1e-3) bad++ }
    END { exit !(n >= 3 && !bad) }' all.csv || fail "boxes outside their image, or not the best first"
if ! sanitized; then # where a detection takes 2 s
    score=$(sed -n 4p all.csv | cut -d, -f5)
    expect 0 detect photos/17.jpg --threshold "$score" --format csv
    checks=$((checks + 1))
    [ "$(wc -l <out)" = 4 ] || fail "a threshold of the third score does not leave three objects"
    # Neither the company of other images nor the decoding threads change an answer but by rounding.
    expect 0 detect photos --threshold 0 --format csv --batch-size 2 --workers 1
    checks=$((checks + 1))
    paste -d, all.csv out | awk -F, 'NR > 1 && NR < 20 { d = $5 - $14; if ($1 != $10 || d * d > 1e-8) bad++ } END { exit bad }' ||
        fail "batches of another size give other answers"
fi
expect 0 detect photos/17.jpg
expect_text out '^photos/17.jpg$'
if command -v python3 >/dev/null; then
    expect 0 detect photos --threshold 0 --format json
    cp out all.json
    expect 0 detect photos --threshold 0 --format coco
    cp out coco.json
    checks=$((checks + 1))
    python3 - <<'END' 2>err || fail "JSON: $(cat err)"
import csv, json
rows = list(csv.DictReader(open("all.csv")))
files = json.load(open("all.json"))
coco = json.load(open("coco.json"))
assert [f["file"] for f in files] == ["photos/17.jpg", "photos/19.png", "photos/sub/018.jpg"]
assert [(f["width"], f["height"]) for f in files] == [(96, 96), (48, 40), (96, 96)]
found = [(f["file"], d) for f in files for d in f["detections"]]
assert len(found) == len(rows) == len(coco) > 3
for row, (file, d), c in zip(rows, found, coco):
    assert set(d) == {"class_id", "class", "score", "bbox"} and set(c) == {"image_id", "category_id", "bbox", "score"}
    assert row["file"] == file and int(row["class_id"]) == d["class_id"] == c["category_id"] and row["class"] == d["class"]
    assert c["image_id"] == int(file.split("/")[-1].split(".")[0])
    numbers = [float(row[k]) for k in ("x", "y", "width", "height", "score")]
    assert numbers == d["bbox"] + [d["score"]]
    # All digits of the float: nine of them say the same float.
    assert all(abs(a - b) <= 1e-8 * abs(b) for a, b in zip(numbers, c["bbox"] + [c["score"]]))
assert {r["class_id"]: r["class"] for r in rows}.items() <= \
    {str(c["id"]): c["name"] for c in json.load(open("data/annotations/instances_val.json"))["categories"]}.items()
END
else
    skip_part "no python3 here to read JSON"
fi

# ---- drawing ----
if [ -e /usr/lib/x86_64-linux-gnu/libcairo.so.2 ] || ldconfig -p 2>/dev/null | grep -q 'libcairo\.so\.2'; then
    expect 0 detect photos data/val/*1.jpg --threshold 0.01 --draw drawn/deep
    for file in 17.jpg 19.png sub/018.jpg; do
        checks=$((checks + 1))
        { [ -s drawn/deep/$file ] && ! cmp -s drawn/deep/$file photos/$file; } || fail "drawn/deep/$file is not a drawn copy"
    done
    checks=$((checks + 1))
    [ "$(find drawn -type f | wc -l)" = 4 ] || fail "not four copies: $(find drawn -type f)"
    cp photos/17.jpg before.jpg
    expect_sentence 2 'would replace that image' detect photos --draw photos
    expect_sentence 2 'would replace that image' detect photos/17.jpg --draw photos/sub/..
    expect_same photos/17.jpg before.jpg
    touch file
    expect '73|74' detect photos --draw file/below
else
    expect_sentence 69 'without cairo' detect photos --draw drawn
fi

# ---- bad files among good ones ----
printf 'no image' >photos/18.jpg
expect 65 detect photos missing.jpg --threshold 0.01 --format json
expect_text err '18.jpg. is no image of a kind that is read'
expect_text err 'missing.jpg'
checks=$((checks + 1))
[ "$(grep -c '"file"' out)" = 3 ] || fail "the good files were not answered"
expect_sentence 66 'missing.jpg' detect missing.jpg
cp photos/17.jpg 'name of 3.jpg'
expect_sentence 65 'name of 3.jpg' detect 'name of 3.jpg' --format coco
expect_text out '^\[\]$'
rm photos/18.jpg

# ---- more classes than the data have: their ids are none of the data's, here 1, 5 and 3 ----
if ! sanitized; then
    expect 0 wide "$convoy" -q train data --arch ssd320 --image-size 64 --batch-size 2 --steps 1 --num-classes 5 --training-only \
        --workspace wide
    LC_ALL=C sed -i 's/\(category_ids": "\)\[1, 2, 3\]/\1[1, 5, 3]/' wide/checkpoint.safetensors
    expect 0 wide "$convoy" -q detect photos --weights wide/checkpoint.safetensors --threshold 0 --format csv
    checks=$((checks + 1))
    [ "$(tail -n +2 out | cut -d , -f 3 | sort -u | paste -sd ' ')" = "1 3 5 6 7" ] || fail "ids: $(cut -d , -f 3 out | sort | uniq -c)"
fi

# ---- what is refused ----
expect_sentence 2 'threshold' detect photos --threshold 1.5
expect_sentence 2 'weights FILE' "$convoy" detect photos
expect_sentence 2 'eval-resize' detect photos --eval-resize 64
expect_sentence 2 'eval-resize is for classification' "$convoy" -q evaluate data --weights $weights --eval-resize 64
expect_sentence 65 'detects objects and does not classify' "$convoy" -q classify photos/17.jpg --weights $weights
make_shapes folders 2 1
expect 0 tiny_train folders --epochs 1 --workspace classifier
expect_sentence 65 'resnet18, which classifies' "$convoy" -q detect photos --weights classifier/checkpoint.safetensors
expect_sentence 2 'area-rule is for detectors' "$convoy" -q evaluate folders --weights classifier/checkpoint.safetensors \
    --area-rule box
expect_sentence 2 'annotation or box' "$convoy" -q evaluate data --weights $weights --area-rule outline
expect 0 "$convoy" -q evaluate data --weights $weights --report page.html
expect_text out '^ Average Precision  \(AP\) @\[ IoU=0.50:0.95 \| area=   all \| maxDets=100 \] = [0-9.]+$'
expect_text page.html 'Precision and recall'
finish
