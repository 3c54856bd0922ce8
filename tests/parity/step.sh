#!/bin/bash
# 20 training steps of resnet50 on the cpu backend against PyTorch; see step.py for what is compared and how, and
# step_networks.sh for others. Most of the time goes into PyTorch's float64, which uses one core.
. "$(dirname "$0")/support_step.sh"

step resnet50 64
step_end
