#!/bin/bash
# Anchors, matching, losses with gradients and suppression against numpy and PyTorch.
set -u
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
"${CONVOY_PYTHON:-/usr/bin/python3}" "$CONVOY_SOURCE/tests/parity/detection.py" --tool "$CONVOY_BUILD/tests/detection_dump" \
    --work "$work"
