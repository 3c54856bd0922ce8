#!/bin/bash
# ONNX files of every architecture at 224 pixels and at an odd size, checked by onnx.checker and computed by ONNX Runtime.
set -u
. "$(dirname "$0")/support_python.sh"
# The system's torch wants the first numpy; later versions of these want the second.
find_python "onnxruntime==1.19.2" "onnx==1.16.2" "numpy<2"
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT

"$python" "$CONVOY_SOURCE/tests/parity/onnx_file.py" --convoy "$CONVOY" --tool "$CONVOY_BUILD/tests/random_weights" \
    --work "$work" --with onnxruntime --detector 320 all:224 all:161 resnet50:224:same se-resnet50:161:same
