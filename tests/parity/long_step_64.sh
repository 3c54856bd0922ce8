#!/bin/bash
# 20 training steps of resnet18 and resnet50 on the cpu backend against PyTorch: step.sh and step_networks.sh for longer.
. "$(dirname "$0")/support_step.sh"

step resnet18 64
step resnet50 64
step_end
