#!/bin/bash
# Fine-tuning steps of resnet18 on the cpu backend against PyTorch: two learning rates, and layers frozen at the bottom,
# in the middle, and a batch norm without its convolution. See step.py for what is compared and how. The rate is that of
# step.sh: in a quieter run one activation that meets a kink decides the comparison (doc/worklog.md).
. "$(dirname "$0")/support_step.sh"

step resnet18 64 --batches 2 --lr 0.1 --head-lr 0.3 --freeze conv1,bn1,layer1,layer3.0.bn1,layer3.1
step_end
