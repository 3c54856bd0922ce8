#!/bin/bash
# One step of every network at an odd size against PyTorch; see step.py. With what an option changes: C / 16 hidden units,
# TensorFlow's padding (nowhere another one at 97 pixels, at 96 in every window), 1001 outputs.
. "$(dirname "$0")/support_step.sh"

for arch in resnet18 resnet34 resnet50 resnet101 resnet152 resnext50-32x4d resnext101-32x4d resnext101-32x8d se-resnet50 \
    se-resnext101-32x4d; do
    step $arch 97 --batch 4 --batches 1 --steps 1
done
step se-resnext101-32x4d 96 --batch 4 --batches 1 --steps 1 --padding same --squeeze-width c/16 --classes 1001
step resnext101-32x4d 96 --batch 4 --batches 1 --steps 1 --padding same --classes 1001
step_end
