#!/bin/bash
# TensorBoard reads the events of a run, also of one that was stopped and resumed; see long_tensorboard.py.
set -u
. "$(dirname "$0")/support_python.sh"
find_python tensorboard "numpy<2"
work=$(mktemp -d "${TMPDIR:-/tmp}/convoy-tensorboard.XXXXXX")
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
"$CONVOY" -q dataset shapes data --train-per-class 8 --val-per-class 10 --image-size 40 || exit 1
train="$CONVOY -q train data --arch resnet18 --image-size 32 --batch-size 10 --lr 0.02 --print-freq 3 --epochs 2"
$train --workspace plain >out || exit 1
$train --workspace parts --run-epochs 1 >out || exit 1
"$CONVOY" -q train data --resume parts >out || exit 1
"$python" "$CONVOY_SOURCE/tests/parity/long_tensorboard.py" plain parts
