#!/bin/bash
# Training steps on the cpu backend against PyTorch; see step.py for what is compared and how. resnet18 and resnet50: 20
# steps. One step of a network with grouped convolutions, and of one with squeeze-and-excitation and TensorFlow's padding.
# Two run side by side: most of the time goes into PyTorch's float64, which uses one core.
. "$(dirname "$0")/support_step.sh"

step resnet18 64 &
step resnet50 64
wait
step resnext50-32x4d 64 --batches 1 --steps 1 &
step se-resnet50 64 --batches 1 --steps 1 --padding same
wait
step_end
