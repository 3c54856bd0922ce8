#!/bin/bash
# Weights files of torchvision's resnet18 and resnet50 through Convoy and back; see weights.py.
set -u
source_folder=${CONVOY_SOURCE:-$(cd "$(dirname "$0")/../.." && pwd)}
convoy=${CONVOY:-$source_folder/build/convoy}
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT

"${CONVOY_PYTHON:-/usr/bin/python3}" "$source_folder/tests/parity/weights.py" --convoy "$convoy" --work "$work" \
    --with torchvision
