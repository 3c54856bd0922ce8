#!/bin/bash
# Checkpoints of NVIDIA's TensorFlow program for classification: written, found by name, file and folder, told what they
# are, used for answers, for quantised training and as a start; whose rules crop and resize; what the program cannot have.
. "$(dirname "$0")/support_common.sh"
narrow
make_shapes data 2 1
seq 1001 >names
train() { "$convoy" train data -q --image-size 32 --batch-size 4 --workers 1 "$@"; }
answers() { "$convoy" -q classify data/val --format csv --logits --image-size 32 --class-names names --weights "$@"; }

# ---- a training of Convoy as one of theirs, and back ----
expect 0 train --recipe tensorflow --arch resnet50 --epochs 1 --batch-size 10 --lr 0.001 --training-only --print-freq 1 --workspace run
# The records have that program's names too.
expect 0 "$convoy" -q train --data_dir data --mode=evaluate --model_dir run --results_dir seen --batch_size 4
mv out seen.txt
expect 0 "$convoy" -q train --data_dir data --mode=evaluate --results_dir run --batch_size 4 # the checkpoints are there then
expect_same seen.txt out
checks=$((checks + 1))
/usr/bin/python3 - <<'PY' || fail "the names of the reference program are missing"
import json

def read(file):
    records = [json.loads(line[5:]) for line in open(file)]
    return [(record["step"], record["data"]) for record in records if record["type"] == "LOG" and record["step"] != "PARAMETER"]

run, seen = read("run/experiment_raport.json"), read("seen/log.json")[-1][1]
steps = [data for step, data in run if len(step) == 2 and "train.loss" in data]
assert steps and all(data["cross_entropy"] == data["train.loss"] and data["imgs_per_sec"] == data["train.total_ips"] and
                     data["learning_rate"] == data["train.lr"] for data in steps)
epoch = [data for step, data in run if len(step) == 1][0]
assert epoch["cross_entropy"] == epoch["train.loss"] and epoch["learning_rate"] == epoch["train.lr"]
assert epoch["l2_loss"] == epoch["train.l2_loss"] and epoch["total_loss"] == epoch["train.total_loss"]
assert epoch["train_throughput"] == epoch["train.total_ips"] and "top1_accuracy" not in epoch
assert abs(100 * seen["top1_accuracy"] - seen["val.top1"]) < 1e-9 and abs(100 * seen["top5_accuracy"] - seen["val.top5"]) < 1e-9
assert seen["eval_throughput"] == seen["val.total_ips"]
assert 0 < seen["eval_latency_p90"] <= seen["eval_latency_p95"] <= seen["eval_latency_p99"] and seen["eval_latency_avg"] > 0
PY
mkdir dir
expect 0 "$convoy" convert run/checkpoint.safetensors dir/model.ckpt-2.index
expect_text out 'resnet50, 1001 classes'
expect_text dir/checkpoint '^model_checkpoint_path: "model.ckpt-2"$'
expect 0 "$convoy" convert dir/model.ckpt-2 again.safetensors
expect 0 "$convoy" convert again.safetensors dir/other.index
expect_same dir/model.ckpt-2.index dir/other.index
expect_same dir/model.ckpt-2.data-00000-of-00001 dir/other.data-00000-of-00001
expect_text dir/checkpoint 'model.ckpt-2' # one that is there stays
checks=$((checks + 1))
[ "$(find dir -type f | wc -l)" = 5 ] || fail "dir holds more than two checkpoints and a state"
rm -r again.safetensors dir/other.*

# ---- by the name of the checkpoint, of its index and of its folder; answers are those of the run ----
expect 0 answers run/checkpoint.safetensors --eval-resize 36
mv out by_run
for name in dir/model.ckpt-2 dir/model.ckpt-2.index dir; do
    expect 0 answers "$name" --eval-resize 36
    expect_same by_run out
done
expect 0 "$convoy" info dir/model.ckpt-2
expect_text out '^padding *same$'
expect_text out '^classes *1001$'
expect 0 "$convoy" info dir --arch resnet50
expect_sentence 65 'does not hold the tensors of resnet18' "$convoy" info dir --arch resnet18
expect_sentence 2 'option --arch is for weights files' "$convoy" info resnet50 --arch resnet50
rm dir/checkpoint
expect_sentence 66 'is a folder without' "$convoy" info dir
echo 'model_checkpoint_path: "gone"' >dir/checkpoint
expect_sentence 66 'gone' "$convoy" info dir

# ---- whose rules crop and resize ----
for backend in tensorflow pytorch dali-cpu dali-gpu tensorflow-dali; do
    expect 0 answers dir/model.ckpt-2 --data-backend $backend --eval-resize 36
    mv out by_$backend
done
expect 0 answers dir/model.ckpt-2 --eval-resize 36
expect_same out by_tensorflow
expect_same by_dali-cpu by_dali-gpu
checks=$((checks + 3))
cmp -s by_tensorflow-dali by_dali-cpu && fail "DALI's default filter is not antialiased"
cmp -s by_tensorflow by_pytorch && fail "torchvision's rules are TensorFlow's"
cmp -s by_dali-cpu by_pytorch && fail "DALI's rules are torchvision's"
expect 0 "$convoy" evaluate data --weights dir/model.ckpt-2 --image-size 32 --format json
mv out by_file
expect 0 "$convoy" evaluate data --weights dir/model.ckpt-2 --image-size 32 --format json --data-backend pytorch
checks=$((checks + 1))
cmp -s <(cut -d, -f3 out) <(cut -d, -f3 by_file) && fail "evaluate takes no --data-backend"
expect_sentence 2 'is pytorch, tensorflow, dali-cpu, dali-gpu or tensorflow-dali, not "torch"' answers dir/model.ckpt-2 --data-backend torch

# ---- a published line of quantised training, from the checkpoint ----
expect 0 "$convoy" train -q --data_dir data --mode=train --finetune_checkpoint dir/model.ckpt-2 --quantize --symmetric --use_qdq \
    --lr_init 5e-5 --num_iter 1 --iter_unit epoch --batch_size 10 --weight_init fan_in --model_dir quantised --image-size 32
expect 0 "$convoy" info quantised/checkpoint.safetensors
expect_text out '^quantized *folded-symmetric$'
expect_text out '^padding *same$'
expect 0 "$convoy" convert quantised/checkpoint.safetensors dir/quantised.index # ranges are left out
expect 0 "$convoy" info dir/quantised

# ---- 1000 classes get the program's last output, which nothing is ----
expect 0 train --arch resnet50 --num-classes 1000 --steps 1 --lr 0.001 --training-only --workspace thousand
expect 0 "$convoy" convert thousand/checkpoint.safetensors dir/thousand.index --weights-only
expect_text err 'was trained with --padding torch'
expect 0 "$convoy" -q classify data/val --format csv --logits --topk 1000 --image-size 32 --eval-resize 36 --data-backend pytorch \
    --weights dir/thousand.index
cut -d, -f1-3 out | grep -c ',1000$' >last
checks=$((checks + 1))
[ "$(cat last)" = 0 ] || fail "an image is of the class that is none"
expect 0 "$convoy" info dir/thousand
expect_text out '^classes *1001$'

# ---- what the program cannot have ----
expect_sentence 2 'option --naming is not for .index' "$convoy" convert run no.index --naming tensorflow
expect_sentence 2 'option --naming tensorflow is not for .pth.tar' "$convoy" convert run no.pth.tar --naming tensorflow
expect 0 "$convoy" convert run/checkpoint.safetensors named.safetensors --naming tensorflow
expect 0 answers named.safetensors --eval-resize 36
tiny_train data --steps 1 --training-only --workspace small
expect_sentence 2 'TensorFlow.s program has no resnet18' "$convoy" convert small/checkpoint.safetensors no.index
finish
