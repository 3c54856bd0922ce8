#!/bin/bash
# A detector from made-up shapes: trained, stopped and resumed to the same bytes, evaluated, its records and its refusals.
. "$(dirname "$0")/support_common.sh"
images=6
sanitized && images=3
expect 0 "$convoy" -q dataset shapes data --boxes --train-images $images --val-images 3 --image-size 96

train() { "$convoy" -q train data --arch ssd320 --image-size 64 --batch-size 2 --seed 1 "$@"; }
steps() {
    train --steps 4 --warmup-steps 1 --lr 0.002 --warmup-lr 0.001 --log-every-step "$PWD/$1.csv" --workspace "$1" "${@:2}"
}

# ---- the same bytes after a stop ----
expect 0 steps calm
expect 0 steps stopped --run-epochs 1
expect 0 "$convoy" -q train --resume stopped
expect_same calm/checkpoint.safetensors stopped/checkpoint.safetensors
expect_same calm/metrics.csv stopped/metrics.csv
expect_same calm.csv stopped.csv

# ---- without augmentation ----
expect 0 train --steps 2 --lr 0.001 --augmentation off --training-only --workspace plain

# ---- records ----
expect_text calm/metrics.csv '^epoch,train.loss,train.localization_loss,train.classification_loss,train.regularization_loss,val.ap,'
checks=$((checks + 1))
tail -n 1 calm/metrics.csv | awk -F, '{ sum = $3 + $4 + $5; exit !($2 > 0 && $3 > 0 && $4 > 0 && $5 > 0 && (sum - $2) ^ 2 < 1e-10 * $2 ^ 2) }' ||
    fail "the loss is not the sum of its parts: $(tail -n 1 calm/metrics.csv)"

# ---- evaluation: the numbers of the training's last validation ----
expect 0 "$convoy" train data --evaluate --resume calm --workspace again
expect_text out '^ap [0-9.]+ %$'

# ---- what is refused ----
expect_sentence 2 "option --mixup is for classifiers, and ssd320 is a detector" train --mixup 0.2
make_shapes folders 2 1
expect_sentence 2 "option --area-rule is for detectors, and resnet18 is a classifier" "$convoy" -q train folders --arch resnet18 \
    --area-rule box
expect_sentence 65 "has no boxes" "$convoy" -q train folders --arch ssd320
finish
