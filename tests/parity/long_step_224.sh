#!/bin/bash
# One step of every network at 224 pixels against PyTorch; see step.py. Two images: PyTorch's float64 is slow.
. "$(dirname "$0")/support_step.sh"

for arch in resnet18 resnet34 resnet50 resnet101 resnet152 resnext50-32x4d resnext101-32x4d resnext101-32x8d se-resnet50 \
    se-resnext101-32x4d; do
    step $arch 224 --batch 2 --batches 1 --steps 1
done
step_end
