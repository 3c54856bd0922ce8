#!/bin/bash
# ONNX files: onnx.checker, and their graphs executed by torch. One network of each kind of block, groups, both paddings;
# long_onnx.sh does all of them with ONNX Runtime.
set -u
python=${CONVOY_PYTHON:-/usr/bin/python3}
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT

if ! "$python" -c 'import onnx, torch' 2>/dev/null; then
    echo "onnx or torch is missing (scripts/setup --test installs them)"
    [ -n "${CONVOY_CI:-}" ] && exit 1
    exit 77
fi
"$python" "$CONVOY_SOURCE/tests/parity/onnx_file.py" --convoy "$CONVOY" --tool "$CONVOY_BUILD/tests/random_weights" \
    --work "$work" --with torch --detector 128 resnet18:65 resnet18:64:same resnext50-32x4d:64 se-resnet50:75
