#!/bin/bash
# One training step in bf16 with channels-last images against PyTorch's bf16 (see step.py), as processors with AMX run
# it: where there are no tiles, in memory. Then in blocks of channels, without tiles.
. "$(dirname "$0")/support_step.sh"
grep -q avx512_bf16 /proc/cpuinfo || { echo "skipped: this processor has no instructions for bf16"; exit 77; }

export CONVOY_CPU_LAYOUT=nhwc CONVOY_CPU_TILES=model CONVOY_KERNELS=first
step resnet18 64 --batches 1 --steps 1 --precision bf16
step resnext50-32x4d 64 --batches 1 --steps 1 --precision bf16
unset CONVOY_CPU_TILES
export CONVOY_CPU_LAYOUT=blocked
step resnet50 64 --batches 1 --steps 1 --precision bf16
step_end
