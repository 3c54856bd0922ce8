#!/bin/bash
# convoy convert, and weights in other formats than the one that train writes, for every verb that reads them.
. "$(dirname "$0")/support_common.sh"
narrow
make_shapes data 2 1
picture=$(find data/val -name '*.jpg' | sort | head -n 1)
expect 0 tiny_train data --epochs 1 --workspace run
best=run/model_best.safetensors
checkpoint=run/checkpoint.safetensors
size=$(stat -c %s $best)

# ---- the same network in every format and under every name ----
expect 0 "$convoy" -q classify "$picture" --weights $best --format csv --logits
cp out answer.csv
expect 0 "$convoy" -q evaluate data --weights $best
cp out accuracy
for out in a.pth a.pt a.pth.tar a.safetensors; do
    expect 0 "$convoy" convert $best $out --naming nvidia
    expect_text out "^$out: resnet18, 10 classes, 122 tensors$"
    expect 0 "$convoy" -q classify "$picture" --weights $out --format csv --logits # with the names of the classes
    expect_same answer.csv out
    expect 0 "$convoy" info $out
    expect_text out '^network +resnet18$'
done
expect 0 "$convoy" -q evaluate data --weights a.pth
expect_same accuracy out

# ---- a checkpoint keeps everything, or nothing but the weights ----
expect 0 "$convoy" -q convert $checkpoint b.pth.tar --naming nvidia2019
expect 0 "$convoy" -q convert b.pth.tar b.safetensors
expect_same $checkpoint b.safetensors
expect 0 tiny_train data --epochs 1 --workspace averaged --use-ema 0.9
expect 0 tiny_train data --epochs 1 --workspace squared --optimizer rmsprop --lr 0.001
for kept in averaged squared; do
    for naming in torchvision nvidia; do
        expect 0 "$convoy" -q convert $kept/checkpoint.safetensors b.pth.tar --naming $naming
        expect 0 "$convoy" -q convert b.pth.tar b.safetensors
        expect_same $kept/checkpoint.safetensors b.safetensors
        rm b.pth.tar b.safetensors
    done
done
expect 0 "$convoy" -q convert $checkpoint c.safetensors --weights-only
checks=$((checks + 1))
[ "$(stat -c %s c.safetensors)" -lt $((size + 65536)) ] || fail "--weights-only keeps more than the weights"
expect_sentence 65 'c.safetensors' "$convoy" -q train data --resume c.safetensors
expect_sentence 65 'ema|average' "$convoy" convert $checkpoint d.pth --ema

# ---- refused ----
expect_sentence 2 'x.onyx' "$convoy" convert $best x.onyx
expect_sentence 2 'keras' "$convoy" convert $best x.pth --naming keras
expect_sentence 2 'option --naming slim is for ssd320' "$convoy" convert $best no.safetensors --naming slim
expect 2 "$convoy" convert $best
expect_sentence 66 'missing.pth' "$convoy" convert missing.pth x.pth
expect_sentence 65 'resnet34' "$convoy" convert $best x.pth --arch resnet34
expect_sentence 73 'nowhere' "$convoy" convert $best nowhere/x.pth
cp a.pth cut.pth && truncate_to cut.pth 50
printf 'PK\3\4' >stub.pth
printf '\200\2\212\012\154\374\234\106\371\040\152\250\120\031.' >old.pth
cp a.pth damaged.pth && printf '\377' | dd of=damaged.pth bs=1 seek=$((size / 2)) conv=notrunc status=none
for file in cut stub old damaged; do
    expect_sentence 65 "$file.pth" "$convoy" convert $file.pth x.pth
    expect_sentence 65 "$file.pth" "$convoy" info $file.pth
    expect_sentence 65 "$file.pth" "$convoy" -q classify "$picture" --weights $file.pth --arch resnet18
done
expect_sentence 65 'has 10 classes, not 3' "$convoy" info $best --num-classes 3
expect 0 "$convoy" info $best --num-classes 10
# A classifier of more classes than any memory has room for, in no bytes; and one whose network would still be 9 GB.
for classes in 2147483647 999999; do
    header="{\"fc.weight\":{\"dtype\":\"F32\",\"shape\":[$classes,0],\"data_offsets\":[0,0]}}"
    printf '%b\0\0\0\0\0\0\0%s' "\\x$(printf %x ${#header})" "$header" >many.safetensors
    expect_sentence 65 'many.safetensors' "$convoy" info many.safetensors
    expect_sentence 65 'many.safetensors' "$convoy" -q classify "$picture" --weights many.safetensors --arch resnet50
    expect_sentence 65 'many.safetensors' "$convoy" convert many.safetensors x.pth --arch resnet50
done
# What the metadata say and what the tensors are must agree, for info too.
header='{"__metadata__":{"convoy.arch":"\"resnet18\""},"fc.weight":{"dtype":"F32","shape":[0,512],"data_offsets":[0,0]}}'
printf '%b\0\0\0\0\0\0\0%s' "\\x$(printf %x ${#header})" "$header" >claims.safetensors
expect_sentence 65 'claims.safetensors.*missing' "$convoy" info claims.safetensors
checks=$((checks + 1))
[ -z "$(find . -name 'x.*' -o -name '*.tmp*')" ] || fail "a refused conversion left a file"

# ---- a full disk keeps the old file ----
limited() ( # bash counts in KiB
    trap '' XFSZ
    ulimit -f $((size / 2048))
    "$convoy" -q convert $best "$1"
)
for out in a.pth a.pth.tar a.safetensors; do
    cp $out before
    expect_sentence 74 "$out" limited $out
    expect_same before $out
done
checks=$((checks + 1))
[ -z "$(find . -name '*.tmp*')" ] || fail "a part of a file was left"
finish
