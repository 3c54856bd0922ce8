#!/bin/bash
# 20 training steps of resnet50 and of the deep networks against PyTorch; see step.py.
. "$(dirname "$0")/support_step.sh"

step resnet50 64
step resnext101-32x4d 64 --batches 1
step se-resnext101-32x4d 64 --batches 1
step_end
