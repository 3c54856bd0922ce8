#!/bin/bash
# Lines of PyTorch's program that go on from its own checkpoints; trainings in stages; what evaluates as they go.
. "$(dirname "$0")/support_common.sh"
narrow

expect 0 "$convoy" -q dataset shapes data --train-per-class 3 --val-per-class 1 --image-size 32
options="--arch resnet18 --image-size 32 --eval-resize 32 -b 10 --lr 0.01 --lr-schedule cosine --warmup 1 --momentum 0.9
    --wd 1e-4 --label-smoothing 0.1 --use-ema 0.9 --device cpu --threads 1"
train() { # shellcheck disable=SC2086
    "$convoy" -q train data $options "$@"
}

# ---- a .pth.tar with optimizer, average and epoch: the bits of a run that was not interrupted ----
expect 0 train --epochs 3 --run-epochs 1 --workspace whole
expect 0 "$convoy" convert whole/checkpoint.safetensors ours.pth.tar --naming nvidia
python=${CONVOY_PYTHON:-/usr/bin/python3}
cat >strip.py <<'PY'
import sys, zipfile
# What NVIDIA's program writes has none of the texts that Convoy keeps beside the weights.
with zipfile.ZipFile(sys.argv[1]) as old, zipfile.ZipFile(sys.argv[2], "w", zipfile.ZIP_STORED) as new:
    for name in old.namelist():
        if "/extra/" not in name:
            new.writestr(zipfile.ZipInfo(name), old.read(name))
PY
"$python" strip.py ours.pth.tar theirs.pth.tar || fail "no Python to take the texts out"
expect 0 "$convoy" -q train --resume whole
expect 0 train --epochs 3 --resume theirs.pth.tar --workspace continued
cat >same.py <<'PY'
import json, struct, sys
def tensors(path):
    data = open(path, "rb").read()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8 : 8 + size])
    header.pop("__metadata__")
    return {k: data[8 + size + v["data_offsets"][0] : 8 + size + v["data_offsets"][1]] for k, v in header.items()}
a, b = map(tensors, sys.argv[1:])
assert a.keys() == b.keys() and len(a) > 250, (len(a), len(b))
wrong = [k for k in a if a[k] != b[k]]
assert not wrong, wrong[:5]
PY
checks=$((checks + 1))
"$python" same.py whole/checkpoint.safetensors continued/checkpoint.safetensors || fail "the continued run has other weights"
expect 0 "$convoy" convert whole/checkpoint.safetensors done.pth.tar --naming nvidia
"$python" strip.py done.pth.tar theirs3.pth.tar
expect_sentence 2 'theirs3.pth.tar" has 3 epochs done already' train --epochs 2 --resume theirs3.pth.tar --workspace none
# Under --evaluate its weights and their average count, and nothing else of it.
expect 0 "$convoy" -q train data --evaluate --epochs 1 --resume theirs3.pth.tar -b 7 --image-size 32 --eval-resize 32 --use-ema 0.9 \
    --threads 1
cp out theirs.txt
expect_text out '^moving average: top-1 '
expect 0 "$convoy" -q train data --evaluate --resume whole -b 7 --threads 1
expect_same theirs.txt out
# Before its first epoch is done it can be resumed already, where the other program had stopped.
expect 0 train --epochs 2 --resume theirs.pth.tar --workspace begun --prof 1
expect_text begun/metrics.csv '^1,'
checks=$((checks + 1))
grep -q '^0,' begun/metrics.csv && fail "the epoch that the other program had done was done again"

# ---- stages that pass files on: the first has none ----
expect 0 train --epochs 3 --run-epochs 1 --workspace stages --resume stages/checkpoint_0.pth.tar --checkpoint checkpoint_1.pth.tar
expect_text err 'no checkpoint is there at "stages/checkpoint_0.pth.tar": starting from the beginning'
expect 0 "$convoy" -q train data --run-epochs 2 --workspace stages --resume stages/checkpoint_1.pth.tar \
    --checkpoint checkpoint_2.pth.tar
expect_same stages/checkpoint.safetensors stages/checkpoint_2.pth.tar
checks=$((checks + 1))
"$python" same.py whole/checkpoint.safetensors stages/checkpoint_2.pth.tar || fail "the stages come to other weights"
expect_sentence 66 'does not exist' train --evaluate --resume nothing.pth.tar
expect_sentence 66 'does not exist' train --resume nothing.safetensors

# ---- evaluation of every new checkpoint, from before there is one until the training is done ----
expect_sentence 2 'option --watch is for --evaluate' train --watch 1
(timeout 120 "$convoy" -q train data --evaluate --resume watched --watch 1 --threads 1 >watch.txt 2>watch.err; echo $? >watch.rc) &
watcher=$!
expect 0 train --epochs 2 --workspace watched
wait $watcher
[ "$(cat watch.rc)" = 0 ] || fail "the watching ended with $(cat watch.rc): $(tail -n 3 watch.err)"
checks=$((checks + 1))
[ "$(grep '^step ' watch.txt | tail -n 1)" = "step 6" ] || fail "the last checkpoint was not evaluated: $(cat watch.txt)"
expect 0 "$convoy" -q train data --evaluate --resume watched
expect_text watch.txt "^$(head -n 1 out | sed 's/[.]/[.]/g')$"
# The training images, as validation sees them.
expect 0 "$convoy" -q train data --evaluate --resume watched --eval-training-data
expect_text out ': 30 images$'
expect_sentence 2 'eval-training-data says what --evaluate sees' train --eval-training-data

# ---- the other programs of that folder ----
image=$(find data/val -name '*.jpg' | sort | head -n 1)
expect 0 "$convoy" convert --checkpoint-path theirs.pth.tar --weight-path weights.pth.tar
expect 0 "$convoy" -q classify --arch resnet18 --image-size 32 --weights weights.pth.tar "$image"
cp out plain.txt
expect 0 "$convoy" -q classify --arch resnet18 -c fanin --image-size 32 --pretrained-from-file weights.pth.tar --precision FP32 --cpu \
    --image "$image"
expect_same plain.txt out
expect_sentence 2 'classify needs IMAGE' "$convoy" classify --weights weights.pth.tar
expect_sentence 2 'name IN and OUT together' "$convoy" convert a b --weight-path c
expect_sentence 2 'convert needs IN OUT' "$convoy" convert a
finish
