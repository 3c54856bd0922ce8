#!/bin/bash
# Weights that do not fit or are damaged, for every verb that reads them.
. "$(dirname "$0")/support_common.sh"
narrow
make_shapes data 2 1
picture=$(find data/val -name '*.jpg' | sort | head -n 1)
expect 0 tiny_train data --epochs 1 --workspace run
weights=run/model_best.safetensors
checkpoint=run/checkpoint.safetensors

cp $weights cut.safetensors && truncate_to cut.safetensors 50
head -c 100 $weights >header.safetensors
: >empty.safetensors
echo "no weights at all" >text.safetensors
printf '\377\377\377\377\377\377\377\177{}' >huge_header.safetensors
printf '\2\0\0\0\0\0\0\0{}' >no_tensors.safetensors
for file in cut header empty text huge_header no_tensors; do
    expect_sentence 65 "$file.safetensors" "$convoy" -q classify "$picture" --weights $file.safetensors --arch resnet18 \
        --num-classes 10
    expect_sentence 65 "$file.safetensors" "$convoy" -q evaluate data --weights $file.safetensors --arch resnet18 \
        --num-classes 10
done
expect_sentence 66 'missing.safetensors' "$convoy" -q classify "$picture" --weights missing.safetensors
expect_sentence '65|66' '"data"' "$convoy" -q classify "$picture" --weights data # a folder
expect_sentence 65 'cut.safetensors' "$convoy" info cut.safetensors
expect_sentence 66 'resnet51|architecture' "$convoy" info resnet51
cp text.safetensors text.pth
printf '\010\007\022\006convoy' >network.onnx
expect_sentence 65 'text.pth" is neither' "$convoy" info text.pth
expect_sentence 65 'empty.safetensors" is empty' "$convoy" info empty.safetensors
expect_sentence 65 'network.onnx" is an ONNX file' "$convoy" info network.onnx

# ---- another architecture, another number of classes ----
expect_sentence 65 'resnet18' "$convoy" -q classify "$picture" --weights $weights --arch resnet34
expect_sentence 2 'resnet51' "$convoy" -q classify "$picture" --weights $weights --arch resnet51
expect_sentence 65 '10' "$convoy" -q classify "$picture" --weights $weights --num-classes 7
cp -r data nine && rm -r nine/*/"$(ls data/train | tail -n 1)" # a class less to validate on is no contradiction
expect 0 "$convoy" -q evaluate nine --weights $weights --format json
expect_text out '"images": 9'
cp -r data renamed
for split in train val; do mv renamed/$split/"$(ls data/train | head -n 1)" renamed/$split/aardvark; done
expect_sentence 65 'aardvark|class' "$convoy" -q evaluate renamed --weights $weights

# ---- numbers that are none: a network of them would answer all the same ----
spoil() { # FROM TO NAME VALUE: the last number of a tensor
    /usr/bin/python3 - "$@" <<'PY'
import json, struct, sys
data = bytearray(open(sys.argv[1], "rb").read())
size = struct.unpack("<Q", data[:8])[0]
end = 8 + size + json.loads(data[8:8 + size])[sys.argv[3]]["data_offsets"][1]
data[end - 4:end] = struct.pack("<f", float(sys.argv[4]))
open(sys.argv[2], "wb").write(data)
PY
}
for row in 'layer1.0.conv1.weight nan 2304' 'bn1.running_var inf 16' 'fc.bias -inf 10'; do
    read -r name value count <<<"$row"
    spoil $weights spoilt.safetensors "$name" "$value"
    sentence="\"spoilt.safetensors\" holds no trained network: 1 of the $count numbers of \"$name\" are NaN or infinite"
    expect_sentence 65 "$sentence" "$convoy" -q evaluate data --weights spoilt.safetensors
done
expect_sentence 65 "$sentence" "$convoy" -q classify "$picture" --weights spoilt.safetensors
expect_sentence 65 "$sentence" "$convoy" -q train data --pretrained-weights spoilt.safetensors --workspace refused
expect_sentence 65 "$sentence" "$convoy" -q bench infer --weights spoilt.safetensors --data data
[ ! -e refused ] || fail "a run directory was made for weights that are refused"
expect_sentence 65 "$sentence" "$convoy" -q convert spoilt.safetensors spoilt.onnx # a network that answers, too
[ ! -e spoilt.onnx ] || fail "a network was written whose weights are refused"
expect 0 "$convoy" -q convert spoilt.safetensors spoilt.pth # from weights to weights it looks at no number
expect_sentence 65 'spoilt.pth" holds no trained network' "$convoy" -q classify "$picture" --weights spoilt.pth
expect 0 "$convoy" -q train data --pretrained-weights spoilt.safetensors --reset-head --run-epochs 1 --image-size 32 \
    --workspace fresh # what is bad is left out
# A training judges by its losses, as before; where a checkpoint is only evaluated, it is refused.
spoil $checkpoint spoilt_checkpoint.safetensors fc.bias nan
expect_sentence 65 'spoilt_checkpoint.safetensors" holds no trained network' "$convoy" -q train data \
    --resume spoilt_checkpoint.safetensors --evaluate
expect 0 tiny_train data --epochs 1 --use-ema 0.5 --workspace averaged
spoil averaged/checkpoint.safetensors spoilt_average.safetensors ema.fc.bias nan
expect_sentence 65 'spoilt_average.safetensors" holds no trained network: 1 of the 10 numbers of "ema.fc.bias" are NaN' \
    "$convoy" -q train data --resume spoilt_average.safetensors --evaluate
expect_sentence 65 'spoilt_average.safetensors" holds no trained network: 1 of the 10 numbers of "fc.bias"' \
    "$convoy" -q convert spoilt_average.safetensors spoilt.onnx --ema
expect 0 "$convoy" -q convert spoilt_average.safetensors whole.onnx # the weights themselves are good
# A negative variance would make a channel NaN, which a ReLU hides. A type that is no float is told from a shape.
spoil $weights negative.safetensors bn1.running_var -1
expect_sentence 65 'negative.safetensors" holds no trained network: 1 of the 16 variances "bn1.running_var" are negative' \
    "$convoy" -q classify "$picture" --weights negative.safetensors
expect_sentence 65 'negative.safetensors" holds no trained network: 1 of the 16 variances' \
    "$convoy" -q convert negative.safetensors negative.onnx
/usr/bin/python3 - $weights whole.safetensors <<'PY'
import sys
data = open(sys.argv[1], "rb").read()
at = data.index(b'"F32"', data.index(b'"fc.weight"'))
open(sys.argv[2], "wb").write(data[:at] + b'"I32"' + data[at + 5:])
PY
expect_sentence 65 '1 of another shape or type \("fc.weight" has numbers of type i32\)' \
    "$convoy" -q classify "$picture" --weights whole.safetensors
mkdir ill && cp spoilt_checkpoint.safetensors ill/checkpoint.safetensors
run "$convoy" -q train data --resume ill --epochs 2
checks=$((checks + 1))
grep -q 'no trained network' err && fail "resuming refuses what the training judges by itself"

# ---- resuming from what cannot be continued ----
cp $checkpoint cut_checkpoint.safetensors && truncate_to cut_checkpoint.safetensors 70
expect_sentence 65 'cut_checkpoint.safetensors' "$convoy" -q train data --resume cut_checkpoint.safetensors
expect_sentence 65 'model_best.safetensors' "$convoy" -q train data --resume $weights # has no momentum
expect_sentence 66 'nowhere' "$convoy" -q train data --resume nowhere
mkdir papers && echo text >papers/letter.txt # a folder of somebody's, not of a run
mv data moved # the run's data are where options.json says, unless they are named
expect_sentence 66 'data", are not there: where they have moved, name them' "$convoy" -q train --resume run
expect 0 "$convoy" -q train moved --resume run --epochs 2 --dry-run
mv moved data
expect_sentence 66 'papers" holds no checkpoint' "$convoy" -q train data --resume papers
[ "$(ls papers)" = letter.txt ] || fail "a folder that is none of ours was written to: $(ls papers)"
cp $checkpoint before.safetensors
cp -r run theirs # another network's run, with our checkpoint beside its own
rm theirs/*.safetensors && expect 0 tiny_train data --epochs 1 --arch resnet34 --workspace other
cp other/checkpoint.safetensors theirs/ && cp $checkpoint theirs/ours.safetensors
expect 73 "$convoy" -q train data --resume theirs/ours.safetensors --epochs 2 # the changed option is printed first
expect_text err 'theirs" holds the checkpoint of another run'
expect_same other/checkpoint.safetensors theirs/checkpoint.safetensors
expect_sentence 2 'arch' "$convoy" -q train data --resume run --epochs 2 --arch resnet34
expect_sentence 2 'batch-size' "$convoy" -q train data --resume run --epochs 2 --batch-size 5
expect_sentence 2 'seed' "$convoy" -q train data --resume run --epochs 2 --seed 9
expect 65 "$convoy" -q train nine --resume run --epochs 2 # the changed option is printed, then the class list refused
expect_text err '^convoy: .*10 classes.*nine'
expect_same before.safetensors $checkpoint

# ---- devices and precisions that are not there ----
expect_sentence 2 'gpu' "$convoy" -q classify "$picture" --weights $weights --device gpu
expect_sentence '2|69' 'precision|fp3' "$convoy" -q classify "$picture" --weights $weights --precision fp3
finish
