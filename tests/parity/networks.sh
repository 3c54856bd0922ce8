#!/bin/bash
# Names, shapes and their order, parameters and multiply-adds of every network against PyTorch's; see check_networks.py.
set -eu
source_folder=${CONVOY_SOURCE:-$(cd "$(dirname "$0")/../.." && pwd)}
build=${CONVOY_BUILD:-$source_folder/build}
exec "${CONVOY_PYTHON:-/usr/bin/python3}" "$source_folder/tests/parity/check_networks.py" \
    "$build/tests/list_parameters" "${CONVOY:-$build/convoy}"
