#!/bin/bash
# 20 training steps of resnet50 on the cpu backend against PyTorch: step.sh for longer.
. "$(dirname "$0")/support_step.sh"

step resnet50 64
step_end
