#!/bin/bash
# Fine-tuning steps of resnet18 on the cpu backend against PyTorch: two learning rates, and layers frozen at the bottom,
# in the middle, and a batch norm without its convolution. See step.py for what is compared and how. The rate is that of
# step.sh: in a quieter run one activation that meets a kink decides the comparison (doc/worklog.md).
set -u
source_folder=${CONVOY_SOURCE:-$(cd "$(dirname "$0")/../.." && pwd)}
build=${CONVOY_BUILD:-$source_folder/build}
python=${CONVOY_PYTHON:-/usr/bin/python3}
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
"$python" "$source_folder/tests/parity/step.py" --tool "$build/tests/step_dump" --work "$work" --arch resnet18 --size 64 \
    --batches 2 --device cpu --lr 0.1 --head-lr 0.3 --freeze conv1,bn1,layer1,layer3.0.bn1,layer3.1
