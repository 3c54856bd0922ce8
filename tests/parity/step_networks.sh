#!/bin/bash
# One training step on the cpu backend against PyTorch of a network with grouped convolutions, and of one with
# squeeze-and-excitation and TensorFlow's padding; see step.py, step.sh for resnet50, finetune.sh and long_step_64.sh for resnet18.
. "$(dirname "$0")/support_step.sh"

step resnext50-32x4d 64 --batches 1 --steps 1
step se-resnet50 64 --batches 1 --steps 1 --padding same
step_end
