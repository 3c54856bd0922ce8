#!/bin/bash
# COCO's evaluation against pycocotools: a thousand random cases, and noisy detections on real annotations.
set -u
. "$(dirname "$0")/support_python.sh"
find_python pycocotools
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
set -- --tool "$CONVOY_BUILD/tests/coco_dump" --work "$work" --reference pycocotools --random 1000
[ -z "${CONVOY_TEST_DATA:-}" ] || set -- "$@" --coco "$CONVOY_TEST_DATA"/coco-tiny/annotations/*.json
"$python" "$CONVOY_SOURCE/tests/parity/coco_cases.py" "$@"
