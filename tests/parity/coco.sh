#!/bin/bash
# COCO's evaluation against another implementation of its rules, in numpy; long_coco.sh compares with pycocotools.
set -u
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
set -- --tool "$CONVOY_BUILD/tests/coco_dump" --work "$work" --reference rules --random 150
[ -z "${CONVOY_TEST_DATA:-}" ] || set -- "$@" --coco "$CONVOY_TEST_DATA"/coco-tiny/annotations/*.json
"${CONVOY_PYTHON:-/usr/bin/python3}" "$CONVOY_SOURCE/tests/parity/coco_cases.py" "$@"
