#!/bin/bash
# The numbers of a training's last validation against COCO's rules in numpy on what convoy detect prints.
set -u
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
"${CONVOY_PYTHON:-/usr/bin/python3}" "$CONVOY_SOURCE/tests/parity/detect.py" --convoy "$CONVOY" --work "$work"
