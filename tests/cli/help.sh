#!/bin/bash
# What helps at the command line beside its messages: completion, manual pages, lines that fit a terminal, folders without
# a part for validation, and the benchmark of a network with its weights.
. "$(dirname "$0")/support_common.sh"
narrow

# ---- completion ----
for shell in bash zsh fish; do
    expect 0 "$convoy" completion $shell && cp out completion.$shell
done
expect_sentence 2 'bash, zsh or fish, not "bsh", perhaps bash' "$convoy" completion bsh
# complete WORD...: the words that bash would offer for the last one.
complete_words() {
    bash -c '. ./completion.bash; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _convoy; echo "${COMPREPLY[*]}"' complete "$@"
}
offers() { # offers EXPECTED WORD...
    local expected=$1 answer
    shift
    checks=$((checks + 1))
    answer=$(complete_words "$@")
    [ "$answer" = "$expected" ] || fail "bash offers \"$answer\" after \"$*\", not \"$expected\""
}
offers 'train' convoy tr
offers 'train infer data' convoy bench ''
offers '--label-smoothing' convoy train data --lab
offers '--help-all' convoy train --help-
offers 'resnet101' convoy train --arch resnet10
offers 'cosine' convoy -q train --lr-schedule = c
offers 'json' convoy bench infer --format j
offers '' convoy train ''
for tool in zsh fish; do # where there is one
    checks=$((checks + 1))
    ! command -v $tool >/dev/null || $tool -n completion.$tool || fail "$tool does not read its completion"
done

# ---- manual pages ----
expect 0 "$convoy" man && expect_text out '^\.SH EXIT STATUS'
"$convoy" --help | sed -n '/^verbs:/,/^$/s/^  \([a-z]*\) .*/\1/p' >verbs
checks=$((checks + 1))
[ "$(wc -l <verbs)" -ge 12 ] || fail "the help lists no verbs"
while read -r verb; do
    expect 0 "$convoy" man "$verb" && expect_text out "^convoy..$verb .. " && cp out page."$verb"
    [ -z "${CONVOY_BUILD:-}" ] || expect_same page."$verb" "$CONVOY_BUILD/share/man/man1/convoy-$verb.1"
done <verbs
if command -v groff >/dev/null; then # not even a warning
    checks=$((checks + 1))
    groff -man -ww -Tutf8 page.* 2>complaints >/dev/null
    [ ! -s complaints ] || fail "groff complains: $(head -n 2 complaints)"
fi

# ---- every option of every verb is in each script, and in its page ----
lacks() { # lacks FILE WHAT: names that are in ./names and not in the file
    checks=$((checks + 1))
    missing=$(LC_ALL=C sort -u "$1" | LC_ALL=C comm -23 names -)
    [ -z "$missing" ] || fail "$2 of convoy $verb lacks" $missing
}
for verb in train evaluate classify detect convert info check report 'bench train' 'bench infer' 'bench data' \
    'dataset shapes' 'dataset tfrecord' 'dataset pack'; do
    # shellcheck disable=SC2086
    "$convoy" $verb --help-all | grep -oE '^ +(-., )?--[a-z0-9-]+' | sed 's/.*--//' | LC_ALL=C sort -u >names
    checks=$((checks + 1))
    [ "$(wc -l <names)" -ge 4 ] || fail "$verb has no options"
    grep "^    \"$verb\") words=" completion.bash | grep -oE -- '--[a-z0-9-]+' | sed 's/^--//' >has && lacks has bash
    grep "'__convoy_is $verb'" completion.fish | sed 's/.* -l \([a-z0-9-]*\) .*/\1/' >has && lacks has fish
    sed -n "/^    '$verb')/,/;;/s/^ *'--\([a-z0-9-]*\)[=[].*/\1/p" completion.zsh >has && lacks has zsh
    sed 's/\\-/-/g' "page.${verb%% *}" | grep -oE 'fB--[a-z0-9-]+' | sed 's/^fB--//' >has && lacks has "the page"
done
expect_sentence 2 'no verb "trian", perhaps train' "$convoy" man trian

# ---- addresses are not files ----
make_shapes data 6 1
for arguments in 'train https://example.org/photos.zip' 'check s3://bucket/photos' \
    'train data --arch resnet18 --pretrained-weights https://example.org/w.pth' 'bench infer --weights https://example.org/w.pth --data data'; do
    # shellcheck disable=SC2086
    expect_sentence 66 'an address on a network' "$convoy" -q $arguments
done

# ---- a folder without val/ ----
cp -r data/train flat
expect 0 "$convoy" check flat --format json
kept=$(sed -n 's/.*"set_aside": \([0-9]*\).*/\1/p' out)
expect 0 "$convoy" check flat && expect_text out "^no folder val: training keeps $kept of the images"
checks=$((checks + 1))
[ "${kept:-0}" -ge 10 ] && [ "$kept" -le 20 ] || fail "$kept of 60 images in ten classes are kept"
mkdir -p part && mv flat part/train
expect 0 "$convoy" train part/train --arch resnet18 --image-size 32 --batch-size 10 --lr 0.001 --workers 1 --epochs 2 \
    --run-epochs 1 --workspace run
expect_text err "data .* $((60 - kept)) training and $kept validation images"
expect_text err '^validation +no folder val: 10 % of the images are set aside'
expect 0 "$convoy" evaluate part/train --weights run/model_best.safetensors && expect_text out "images $kept "
expect 0 "$convoy" train --resume run --evaluate --workspace seen && expect_text out ": $kept images\$"
# A resumed run keeps the split, says what changed and not every option, and never that it read no images at all.
expect 0 "$convoy" train --resume run --workers 2
expect_text err "data .* $((60 - kept)) training and $kept validation images"
expect_text err '^flags +workers 2$'
expect_text err '^checkpoint +its options'
checks=$((checks + 2))
grep -qE ' 0\.0 images/s' err && fail "a resumed run tells of 0.0 images/s"
[ "$(awk '{ if (length > max) max = length } END { print max }' err)" -le 250 ] || fail "a resumed run prints a very long line"
mkdir part/train/val
expect_sentence 2 'has a part for validation now' "$convoy" -q train --resume run
rmdir part/train/val

# ---- a network with its weights, measured ----
expect 0 "$convoy" evaluate part/train --weights run/model_best.safetensors --format json && cp out evaluated
expect 0 "$convoy" bench infer --weights run/model_best.safetensors --data part/train --batch-size 3 --format json
expect_text out '"arch": "resnet18"'
expect_text out '"p99": [0-9]'
expect_text out "\"images\": $kept"
expect_text out "\"iterations\": $(((kept + 2) / 3))\\b"
checks=$((checks + 1)) # the same accuracy as evaluate has, to JSON's digits
top1() { sed -n 's/.*"top1": \([0-9.]*\).*/\1/p' "$1" | head -n 1; }
awk -v a="$(top1 out)" -v b="$(top1 evaluated)" 'BEGIN { exit !(a != "" && a - b < 1e-3 && b - a < 1e-3) }' ||
    fail "bench infer has another accuracy: $(top1 out), $(top1 evaluated)"
expect 0 "$convoy" bench infer --weights run/model_best.safetensors --data part/train --iterations 1
expect_text out '^ +32 top-1 .*, top-5 .*, loss '
expect 0 "$convoy" bench infer --weights run/model_best.safetensors --batch-size 2 --iterations 3 --format json # random images
expect_text out '"arch": "resnet18"'
expect_text out '"iterations": 3\b'
! grep -q '"accuracy"' out || fail "there is an accuracy without data"
expect_sentence 2 'num-classes is for networks without weights' "$convoy" bench infer --weights run/model_best.safetensors \
    --data part/train --num-classes 3
expect_sentence 2 'unknown option "--weights"' "$convoy" bench train --weights run/model_best.safetensors

# ---- the lines of an epoch fit, and classes are counted before accuracies are shown ----
for class in $(ls part/train | tail -n +5); do rm -r part/train/"$class"; done
short="train part/train --arch resnet18 --image-size 32 --batch-size 8 --lr 0.001 --workers 1 --epochs 1"
# shellcheck disable=SC2086
expect 0 "$convoy" $short --workspace wide
expect_text err '^epoch .* top-1 .* images/s .* 0:'
checks=$((checks + 1))
! grep -q 'top-5' err || fail "top-5 of four classes is shown"
if command -v script >/dev/null; then
    script -qec "stty cols 60; exec '$convoy' $short --workspace narrow" typescript </dev/null >screen 2>&1
    tr -d '\r' <screen | sed 's/.*\x1b\[K//' | grep '^epoch .*top-1' >epochs
    expect_text epochs 'top-1 .* 0:[0-9]'
    checks=$((checks + 1))
    [ "$(awk '{ if (length > max) max = length } END { print max }' epochs)" -le 60 ] || fail "too long for 60 columns: $(cat epochs)"
else
    skip_part "no script here"
fi
finish
