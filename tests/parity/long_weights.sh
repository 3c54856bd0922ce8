#!/bin/bash
# Weights files through timm's networks and Python's safetensors, and those of a current PyTorch; see weights.py. The
# system's PyTorch is an old one: CONVOY_TORCH_PYTHON names a Python with a newer one.
set -u
. "$(dirname "$0")/support_python.sh"
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT

weights() { # PYTHON LIBRARY...
    local interpreter=$1
    shift
    "$interpreter" "$CONVOY_SOURCE/tests/parity/weights.py" --convoy "$CONVOY" --work "$work" "${@/#/--with=}"
}

find_python "timm==0.6.13" safetensors "numpy<2"
weights "$python" timm safetensors || exit 1
if [ -n "${CONVOY_TORCH_PYTHON:-}" ]; then
    weights "$CONVOY_TORCH_PYTHON" torchvision || exit 1
else
    echo "skipped in part: CONVOY_TORCH_PYTHON does not name a Python with a current PyTorch"
    exit 77
fi
