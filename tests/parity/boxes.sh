#!/bin/bash
# The detection transform against numpy; see boxes.py.
set -u
data=${CONVOY_TEST_DATA:-}
if [ ! -d "$data/coco-tiny" ]; then
    echo "no sample images (CONVOY_TEST_DATA)"
    exit 77
fi
/usr/bin/python3 -c 'import numpy' 2>/dev/null || {
    echo "numpy is missing"
    [ -n "${CONVOY_CI:-}" ] && exit 1
    exit 77
}
exec /usr/bin/python3 "$CONVOY_SOURCE/tests/parity/boxes.py" "$CONVOY_BUILD/tests/boxes_dump" \
    "$data/coco-tiny/annotations/instances_train2017.json" "$data/coco-tiny/train2017" 97 3
