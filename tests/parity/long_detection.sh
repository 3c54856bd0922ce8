#!/bin/bash
# The same with TensorFlow's own non-maximum suppression.
set -u
. "$(dirname "$0")/support_python.sh"
find_python "tensorflow:tensorflow-cpu==2.15.1" "numpy<2"
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
"$python" "$CONVOY_SOURCE/tests/parity/detection.py" --tool "$CONVOY_BUILD/tests/detection_dump" --work "$work" --tensorflow
