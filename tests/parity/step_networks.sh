#!/bin/bash
# Eight training steps of resnet18 on the cpu backend against PyTorch (see step.py, and long_step_64.sh for twenty); one
# step of a network with grouped convolutions, and of one with squeeze-and-excitation and TensorFlow's padding.
. "$(dirname "$0")/support_step.sh"

step resnet18 64 --steps 8
step resnext50-32x4d 64 --batches 1 --steps 1
step se-resnet50 64 --batches 1 --steps 1 --padding same
step_end
