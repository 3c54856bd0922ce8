#!/bin/bash
# 20 training steps of the deep networks against PyTorch; see step.py.
. "$(dirname "$0")/support_step.sh"

step resnext101-32x4d 64 --batches 1
step se-resnext101-32x4d 64 --batches 1
step_end
