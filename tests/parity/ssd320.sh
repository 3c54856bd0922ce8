#!/bin/bash
# A training step of SSD320 on the cpu backend against a network written with PyTorch; see ssd320.py.
set -u
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
"${CONVOY_PYTHON:-/usr/bin/python3}" "$CONVOY_SOURCE/tests/parity/ssd320.py" --tool "$CONVOY_BUILD/tests/step_dump" \
    --work "$work"
