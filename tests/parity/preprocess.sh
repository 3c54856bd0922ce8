#!/bin/bash
# Decoding and transforms against Pillow and torchvision, on the sample images and on odd ones made for it.
set -eu

images=${CONVOY_TEST_DATA:-}/imagenet-samples
if [ ! -d "$images" ]; then
    echo "no sample images (CONVOY_TEST_DATA)"
    exit 77
fi
python=${CONVOY_PYTHON:-/usr/bin/python3}
if ! "$python" -c 'import torchvision' 2>/dev/null; then
    echo "torchvision is missing (scripts/setup --test installs it)"
    [ -n "${CONVOY_CI:-}" ] && exit 1
    exit 77
fi
exec "$python" "$CONVOY_SOURCE/tests/parity/preprocess.py" "$CONVOY_BUILD/tests/dump_transform" "$images"
