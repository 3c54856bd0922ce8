#!/bin/bash
# Six training steps of resnet50 on the cpu backend against PyTorch; see step.py for what is compared and how,
# step_networks.sh for others and long_step_64.sh for twenty steps. Most of the time goes into PyTorch's float64, which
# uses one core.
. "$(dirname "$0")/support_step.sh"

step resnet50 64 --steps 6
step_end
