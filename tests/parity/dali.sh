#!/bin/bash
# DALI's evaluation transform against DALI itself, where it is installed (CPU operators need no GPU).
set -eu

images=${CONVOY_TEST_DATA:-}/imagenet-samples
if [ ! -d "$images" ]; then
    echo "no sample images (CONVOY_TEST_DATA)"
    exit 77
fi
python=${CONVOY_PYTHON:-/usr/bin/python3}
if ! "$python" -c 'import nvidia.dali, PIL' 2>/dev/null; then
    echo "DALI is missing: CONVOY_PYTHON may name a Python that has it"
    exit 77
fi
exec "$python" "$CONVOY_SOURCE/tests/parity/dali.py" "$CONVOY_BUILD/tests/dump_transform" "$images"
