#!/bin/bash
# convert to ONNX: options, exit codes, a file that is there whole or not at all. What is in the file: unit.test_onnx and
# parity.onnx.
. "$(dirname "$0")/support_common.sh"
make_shapes data 2 1
expect 0 tiny_train data --epochs 1 --workspace run
weights=run/model_best.safetensors
checkpoint=run/checkpoint.safetensors
classes=$(ls data/train | head -n 1)

# ---- weights and a checkpoint, whose momentum has no place in it, give the same file ----
expect 0 "$convoy" -q convert $weights a.onnx
expect_text out '^a.onnx: resnet18, 10 classes, 102 tensors$'
expect 0 "$convoy" -q convert $checkpoint b.onnx
expect_same a.onnx b.onnx
for text in convoy.arch convoy.classes convoy.preprocessing "$classes" layer1.0.conv1.weight; do
    checks=$((checks + 1))
    grep -qaF -- "$text" a.onnx || fail "a.onnx does not hold $text"
done
checks=$((checks + 1))
grep -qaE 'momentum|num_batches' a.onnx && fail "a.onnx holds what only training needs"
expect 0 "$convoy" -q convert $weights c.onnx --image-size 48
checks=$((checks + 1))
cmp -s a.onnx c.onnx && fail "--image-size changed nothing"
grep -qaF '"image_size": 48, "resize": 55' c.onnx || fail "c.onnx does not say its size"

# ---- usage ----
expect_sentence 2 'image-size' "$convoy" -q convert $weights x.safetensors --image-size 48
expect_sentence 2 'padding' "$convoy" -q convert $weights x.safetensors --padding same
expect_sentence 2 'image-size' "$convoy" -q convert $weights x.onnx --image-size 31
expect_sentence 2 'naming' "$convoy" -q convert $weights x.onnx --naming timm
expect_sentence 2 'padding' "$convoy" -q convert $weights x.onnx --padding valid
expect_sentence 65 'padding' "$convoy" -q convert $weights x.onnx --padding same # the file says torch
expect_sentence 65 'a.onnx" is an ONNX file' "$convoy" -q convert a.onnx x.onnx # an output only

# ---- nothing half written ----
expect_sentence 66 'nowhere' "$convoy" -q convert nowhere.safetensors x.onnx
head -c 100000 $weights >cut.safetensors
expect_sentence 65 'cut.safetensors' "$convoy" -q convert cut.safetensors x.onnx
expect_sentence 73 'no/such' "$convoy" -q convert $weights no/such/x.onnx
[ ! -e x.onnx ] || fail "a refused conversion left a file"
cp a.onnx kept.onnx
limited() ( # bash counts in KiB
    trap '' XFSZ
    ulimit -f 20000
    "$convoy" -q convert $weights kept.onnx --image-size 48
)
expect_sentence 74 'kept.onnx' limited
expect_same a.onnx kept.onnx
leftovers=$(find . -name '*.tmp*' | head -n 1)
[ -z "$leftovers" ] || fail "a part of a file was left: $leftovers"
finish
