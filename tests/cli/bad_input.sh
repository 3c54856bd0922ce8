#!/bin/bash
# Data sets and images with something wrong: one sentence that names it, the right exit code, the good part still done.
. "$(dirname "$0")/support_common.sh"
narrow
make_shapes good 2 1
class=$(ls good/train | head -n 1)
picture=$(ls good/train/"$class" | head -n 1)

# ---- folders that cannot be a data set ----
copy() { # a fresh copy of the good set
    rm -rf "$1"
    cp -r good "$1"
}
mkdir empty
echo "not a folder" >file
copy no_val && rm -r no_val/val
copy empty_class && rm empty_class/train/"$class"/*
copy empty_val_class && rm empty_val_class/val/"$class"/*
copy odd_class && mkdir odd_class/val/zebra && cp good/train/"$class/$picture" odd_class/val/zebra/
mkdir -p no_images/train/a no_images/val/a
for verb in train check; do
    expect_sentence 66 'missing' "$convoy" -q $verb missing
    expect_sentence 65 'empty' "$convoy" -q $verb empty
    expect_sentence 65 'line 1 of "file".*path<TAB>label' "$convoy" -q $verb file
    expect_sentence 65 "empty_class|$class" "$convoy" -q $verb empty_class
    expect_sentence 65 "empty_val_class/val|$class" "$convoy" -q $verb empty_val_class
    expect_sentence 65 'zebra' "$convoy" -q $verb odd_class
    expect_sentence 65 'no_images|"a"' "$convoy" -q $verb no_images
done
mkdir -p other_names/training other_names/valid deeper/photos && cp -r good/train/* other_names/training && cp -r good deeper/photos/train
for verb in train check; do
    expect_sentence 66 'has a folder "(valid|training)" where "(val|train)" is looked for' "$convoy" -q $verb other_names
    expect_sentence 66 '"deeper/photos" has one: give that folder' "$convoy" -q $verb deeper
done
mkdir -p no_val/one && mv no_val/train no_val/one/class
expect_sentence 66 'neither folders "train" and "val" nor two class folders' "$convoy" -q train no_val
expect_sentence 2 '--val-split.*good/val' "$convoy" -q train good --val-split 0.2
[ ! -e runs ] || fail "a refused training left a run directory"

# ---- one set with every kind of bad image ----
copy bad
cd bad/train/"$class" || exit 1
cp "$picture" truncated.jpg && truncate_to truncated.jpg 60
: >empty.jpg
echo "this is a text" >text.jpg
printf '\0\0\0\14jP  \r\n\207\n\0\0\0\24ftypjp2 \0\0\0\0jp2 ' >jp2.jpg # JPEG 2000, which nobody reads here
write_bomb bomb.png
ln -s nowhere dangling.jpg
write_png png.jpg # a good picture under the wrong name
cd "$work" || exit 1
damaged="truncated.jpg empty.jpg text.jpg jp2.jpg bomb.png"

expect 65 "$convoy" -q check bad
for name in $damaged dangling.jpg png.jpg; do
    expect_text out "$name"
done
expect 0 "$convoy" -q check good

# Training continues with other images and names each bad one once.
expect 0 tiny_train bad --epochs 2 --workspace run
for name in $damaged dangling.jpg; do
    expect_text err "$name"
    [ "$(grep -c "$name" err)" = 1 ] || fail "$name was not named once but $(grep -c "$name" err) times"
done
if grep -q png.jpg err; then fail "a readable picture was called bad"; fi
expect_text out '^6 unreadable images'
weights=run/model_best.safetensors
# A run that continues on other classes: fewer, more.
copy more_classes && cp -r good/train/"$class" more_classes/train/zebra
copy fewer_classes && rm -r fewer_classes/*/"$class"
for set in more_classes fewer_classes; do
    expect_sentence 65 "was trained on [0-9]+ classes, but \"$set\" has [0-9]+\$" "$convoy" -q train $set --resume run
done
expect '65|66' tiny_train bad --epochs 1 --workspace strict --strict # whichever comes first in the shuffled order
expect_text err 'truncated.jpg|empty.jpg|text.jpg|jp2.jpg|bomb.png|dangling.jpg'

# A set in which nothing can be read.
mkdir -p hopeless/train/a hopeless/train/b hopeless/val/a hopeless/val/b
for folder in hopeless/*/*; do echo text >"$folder/x.jpg"; done
expect 65 tiny_train hopeless --epochs 1 --batch-size 2 --workspace hopeless_run
expect_text err 'x.jpg|readable'

# ---- classify: good files first, then a sentence for each bad one ----
folder=bad/train/$class
for name in $damaged; do
    expect_sentence 65 "$name" "$convoy" -q classify "$folder/$name" --weights $weights
    [ ! -s out ] || fail "an answer for $name"
done
expect_sentence 66 'dangling.jpg' "$convoy" -q classify "$folder/dangling.jpg" --weights $weights
expect_sentence 66 'missing.jpg' "$convoy" -q classify missing.jpg --weights $weights
expect_sentence 65 'empty' "$convoy" -q classify empty --weights $weights
expect 0 "$convoy" -q classify "$folder/png.jpg" --weights $weights
expect 65 "$convoy" -q classify "$folder/text.jpg" "$folder/$picture" --weights $weights --format csv --topk 1
expect_text out "$picture,1,"
expect_text err '^convoy: .*text.jpg'
expect 65 "$convoy" -q classify "$folder/text.jpg" "$folder/$picture" --weights $weights --format json
expect_text out '^\[\{"file": .*\}\]$'

# A folder in the folder that cannot be read: the others are answered. (Root reads everything: root's rights are given up.)
mkdir -p locked/closed && cp "$folder/$picture" locked/z.jpg && chmod 0 locked/closed
unprivileged=()
if [ "$(id -u)" = 0 ]; then
    chmod 755 "$work"
    unprivileged=(setpriv --reuid 65534 --regid 65534 --clear-groups)
fi
if ${unprivileged[@]+"${unprivileged[@]}"} test -x "$convoy" -a -r "$weights" 2>/dev/null; then
    expect 66 ${unprivileged[@]+"${unprivileged[@]}"} "$convoy" -q classify locked --weights $weights --format csv --topk 1
    expect_text out 'locked/z.jpg,1,'
    expect_text err '^convoy: .*locked/closed.*Permission denied'
else
    skip_part_unavoidable "no way to give up root's rights"
fi
chmod 755 locked/closed

# ---- evaluate leaves bad images out and counts them ----
copy bad_val && echo text >bad_val/val/"$class"/text.jpg
expect 0 "$convoy" -q evaluate bad_val --weights $weights --format json
expect_text out '"skipped": 1'
expect_text out '"images": 10'
expect_text err '^convoy: warning: "bad_val/val/.*/text.jpg" is no image .*; it is left out$'
expect 0 tiny_train bad_val --epochs 2 --workspace named # by the first validation alone
checks=$((checks + 1))
[ "$(grep -c 'text.jpg" is no image .*; it is left out$' err)" = 1 ] || { fail "a bad image of the validation is not named once"; show; }

# ---- outputs that exist ----
expect_sentence 73 'good' "$convoy" -q dataset shapes good
expect_sentence 73 'run' tiny_train good --epochs 1 --workspace run # it holds a checkpoint
mkdir cold # that is said before anything is timed for a run that will not be
expect_sentence 73 'holds a checkpoint already; use --resume run' env CONVOY_CACHE_DIR=$PWD/cold CONVOY_KERNELS=once \
    "$convoy" -q train good --arch resnet50 --image-size 224 --batch-size 8 --epochs 1 --workspace run
[ -z "$(ls cold)" ] || fail "kernels were timed for a run that is refused: $(ls cold)"
expect_sentence 73 'file' tiny_train good --epochs 1 --workspace file/run
finish
