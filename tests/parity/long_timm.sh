#!/bin/bash
# The squeeze-and-excitation networks of networks.py against timm's; see long_timm.py. timm is not part of Debian:
# CONVOY_TIMM_PYTHON names a Python that has it.
set -eu
source_folder=${CONVOY_SOURCE:-$(cd "$(dirname "$0")/../.." && pwd)}
build=${CONVOY_BUILD:-$source_folder/build}
python=${CONVOY_TIMM_PYTHON:-${CONVOY_PYTHON:-/usr/bin/python3}}
if ! "$python" -c 'import timm' 2>/dev/null; then
    echo "timm is missing: CONVOY_TIMM_PYTHON names a Python that has it"
    [ -n "${CONVOY_CI:-}" ] && exit 1
    exit 77
fi
exec "$python" "$source_folder/tests/parity/long_timm.py" "$build/tests/list_parameters"
