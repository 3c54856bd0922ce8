#!/bin/bash
# Names from outside on a terminal and in spreadsheets: escaped, aligned by their width, and never a formula.
. "$(dirname "$0")/support_common.sh"
narrow
make_shapes data 2 1
escape=$'\e[31mred'
for part in train val; do
    mv data/$part/circle "data/$part/$escape"
    mv data/$part/cross data/$part/=1+1
    mv data/$part/ring data/$part/漢字
    mv data/$part/star data/$part/größe
done

expect 0 "$convoy" check data
grep -q $'\e' out && fail "an escape sequence reaches the terminal: $(cat -v out)"
expect_text out '^\\x1b\[31mred +2 +1$'
# The columns of numbers end at the same place: a wide letter takes two.
for name in 漢字 größe =1+1; do
    line=$(grep "^$name " out)
    [ "$(printf %s "$line" | LC_ALL=C.UTF-8 wc -L)" = "$(head -n 1 out | wc -L)" ] || fail "the row of $name is not aligned: $line"
done
expect 0 "$convoy" check data --format json
expect_text out '\\u001[bB]\[31mred' # JSON has an escape of its own

expect 0 "$convoy" -q train data --arch resnet18 --image-size 32 --batch-size 4 --epochs 1 --workers 1 --workspace run
image=$(find data/val/=1+1 -name '*.jpg')
cp "$image" ./-a.jpg
cp "$image" "$escape.jpg"
expect 0 "$convoy" classify "$escape.jpg" --weights run/checkpoint.safetensors --topk 10
grep -q $'\e' out && fail "an escape sequence reaches the terminal: $(cat -v out)"
expect_text out '^\\x1b\[31mred\.jpg$'
expect 0 "$convoy" classify --weights run/checkpoint.safetensors --topk 10 --format csv -- -a.jpg
grep -qE '(^|,)"?[=+@-][^0-9]' out && fail "a formula: $(cat -v out)"
grep -q "^'-a.jpg," out || fail "the name of the file is not marked: $(head -n 2 out)"
grep -q ",'=1+1," out || fail "the name of the class is not marked: $(cat -v out)"
finish
