#!/bin/bash
# One training step with channels-last images against PyTorch (see step.py); in fp32, whose layout is another one
# wherever nobody asks for this.
. "$(dirname "$0")/support_step.sh"
export CONVOY_CPU_LAYOUT=nhwc

step resnet18 64 --batches 1 --steps 1
step resnext50-32x4d 64 --batches 1 --steps 1
step_end
