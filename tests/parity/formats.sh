#!/bin/bash
# BMP, GIF, TIFF, HEIC and AVIF: the pixels that Pillow and libheif's own tools see.
set -eu

python=${CONVOY_PYTHON:-/usr/bin/python3}
if ! "$python" -c 'import PIL, numpy' 2>/dev/null; then
    echo "Pillow is missing (scripts/setup --test installs it)"
    [ -n "${CONVOY_CI:-}" ] && exit 1
    exit 77
fi
exec "$python" "$CONVOY_SOURCE/tests/parity/formats.py" "$CONVOY_BUILD/tests/dump_transform"
