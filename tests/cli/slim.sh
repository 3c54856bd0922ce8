#!/bin/bash
# Detectors' weights from elsewhere: TensorFlow's names, a backbone alone, files that do not say their strides.
. "$(dirname "$0")/support_common.sh"
narrow # names, shapes and strides are the same for any width
expect 0 "$convoy" -q dataset shapes data --boxes --train-images 2 --val-images 1 --image-size 96
train() {
    "$convoy" train data --arch ssd320 --image-size 64 --batch-size 2 --steps 1 --warmup-lr 0 --weight-decay 0 --training-only "$@"
}
found() { "$convoy" detect data --threshold 0 --image-size 64 --weights "$@"; }
expect 0 train -q --lr 0.001 --workspace run

# ---- to TensorFlow's names and back ----
expect 0 "$convoy" convert run/checkpoint.safetensors theirs.safetensors --naming slim
expect 0 "$convoy" convert theirs.safetensors ours.safetensors
expect 0 "$convoy" convert ours.safetensors again.safetensors --naming slim
expect_same theirs.safetensors again.safetensors
rm ours.safetensors again.safetensors
expect 0 "$convoy" convert theirs.safetensors theirs.pth --naming slim
expect 0 found run/checkpoint.safetensors
mv out by_ours
expect 0 found theirs.pth
expect_same out by_ours

# The size of images has no place in TensorFlow's own files; the usual one, 320 pixels, needs none.
size_lost='^convoy: warning: "run/checkpoint.safetensors" is for images of 64 pixels, which a checkpoint of TensorFlow.s programs'
size_lost="$size_lost cannot say: give --image-size 64 with \"model.ckpt-1.index\"$"
expect 0 "$convoy" -q convert run/checkpoint.safetensors model.ckpt-1.index
expect_text err "$size_lost"
expect 0 found model.ckpt-1.index # with --image-size 64: the same boxes, of classes without names
for seen in out by_ours; do sed -E 's/ %  .*  at / % at /' $seen >$seen.boxes; done
expect_text out.boxes ' % at [0-9]'
expect_same out.boxes by_ours.boxes
expect 0 "$convoy" convert model.ckpt-1.index usual.safetensors
expect 0 "$convoy" convert usual.safetensors usual.index
checks=$((checks + 1))
grep -q 'pixels' err && fail "a warning of the usual size"
rm checkpoint model.ckpt-1.* usual.*

# What the following needs, made of these files: no metadata, a backbone alone, one of another shape, a classifier with
# another padding.
checks=$((checks + 1))
/usr/bin/python3 - <<'PY' || fail "the files cannot be made"
import json, struct

def read(path):
    data = open(path, "rb").read()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8 : 8 + size])
    header.pop("__metadata__", None)
    return {k: (v["dtype"], v["shape"], data[8 + size + v["data_offsets"][0] : 8 + size + v["data_offsets"][1]]) for k, v in header.items()}

def write(path, tensors, metadata={}):
    header, at = {"__metadata__": metadata}, 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + b"".join(data for _, _, data in tensors.values()))

ours, theirs = read("run/checkpoint.safetensors"), read("theirs.safetensors")
assert sum(not name.endswith("/Momentum") for name in theirs) == 463
write("bare.safetensors", {k: v for k, v in ours.items() if not k.startswith("optimizer.")})

prefix = "FeatureExtractor/"
backbone = {k[len(prefix):]: v for k, v in theirs.items() if k.startswith(prefix) and "/fpn/" not in k and not k.endswith("/Momentum")}
assert len(backbone) == 265
backbone["resnet_v1_50/logits/weights"] = ("F32", [1, 1, 1, 2], bytes(8))
backbone["global_step"] = ("I64", [], bytes(8))
write("backbone.safetensors", backbone)
name = "resnet_v1_50/block1/unit_1/bottleneck_v1/conv1/weights"
assert backbone[name][1] == [1, 1, 16, 16]
backbone[name] = ("F32", [1, 1, 8, 32], backbone[name][2])
write("wrong.safetensors", backbone)

classifier = {k[len("backbone."):]: v for k, v in ours.items() if k.startswith("backbone.")}
features = classifier["layer4.2.conv3.weight"][1][0]
classifier["fc.weight"], classifier["fc.bias"] = ("F32", [2, features], bytes(2 * features * 4)), ("F32", [2], bytes(8))
write("same.safetensors", classifier, {"convoy.arch": '"resnet50"', "convoy.model": '{"padding": "same"}'})
PY

# ---- a backbone alone ----
expect 0 train --lr 0 --pretrained-weights backbone.safetensors --workspace grown
expect_text err 'the backbone from backbone.safetensors, strides and padding as TF-slim has them'
expect 0 "$convoy" convert grown/checkpoint.safetensors grown.safetensors --naming slim --weights-only
checks=$((checks + 1))
/usr/bin/python3 - <<'PY' || fail "the backbone is not the one of the file"
import json, struct

def read(path):
    data = open(path, "rb").read()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8 : 8 + size])
    return {k: data[8 + size + v["data_offsets"][0] : 8 + size + v["data_offsets"][1]] for k, v in header.items() if k != "__metadata__"}

there, here = read("backbone.safetensors"), read("grown.safetensors")
names = [name for name in there if "/block" in name or "/conv1" in name]
assert len(names) == 265
for name in names: # the statistics have moved by a step
    assert there[name] == here["FeatureExtractor/" + name] or "moving" in name, name
PY
expect_sentence 65 '"backbone.layer1.0.conv1.weight" is 32x8x1x1 instead of 16x16x1x1' train -q --lr 0 \
    --pretrained-weights wrong.safetensors --workspace no
expect_sentence 65 "holds a detector's backbone alone" "$convoy" convert backbone.safetensors no.pth
expect_sentence 65 "trained with --padding same, which no backbone of ssd320 has" train -q --lr 0 \
    --pretrained-weights same.safetensors --workspace no

# ---- strides ----
silent() { # nothing of the sort on stderr
    checks=$((checks + 1))
    grep -q -- "$1" err && fail "err says $1"
}
unknown='does not say where its backbone halves the maps'
expect 0 found bare.safetensors
expect_text err "$unknown"
mv out by_default
expect 0 found bare.safetensors --backbone-strides slim
expect_same out by_default
silent "$unknown"
expect 0 found bare.safetensors --backbone-strides torchvision
mv out by_torchvision
checks=$((checks + 1))
cmp -s by_default by_torchvision && fail "the strides change nothing"
expect 0 "$convoy" convert bare.safetensors told.pth --backbone-strides torchvision
expect 0 found told.pth
expect_same out by_torchvision
silent "$unknown"
expect_sentence 65 "was made with --backbone-strides torchvision, not slim" found told.pth --backbone-strides slim
expect 0 "$convoy" convert bare.safetensors not_told.pth
expect 0 found not_told.pth
expect_text err "$unknown"
expect_sentence 65 "was made with --backbone-strides slim, not torchvision" "$convoy" evaluate data --image-size 64 \
    --weights run/checkpoint.safetensors --backbone-strides torchvision
expect_sentence 2 "is for detectors, and resnet50 is a classifier" "$convoy" evaluate data --weights same.safetensors --padding same \
    --backbone-strides slim
expect_sentence 2 "is slim or torchvision, not \"caffe\"" found bare.safetensors --backbone-strides caffe
expect_sentence 2 "option --naming slim is not for .pth.tar" "$convoy" convert bare.safetensors no.pth.tar --naming slim
expect_sentence 2 "has no names for ssd320: those are --naming slim" "$convoy" convert run/checkpoint.safetensors no.safetensors --naming tensorflow
finish
