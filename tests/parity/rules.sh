#!/bin/bash
# The rules of a training (optimizers, schedules, decay, accumulation, averages, loss scales) against PyTorch over 110
# steps; see rules.py for what is compared and how.
set -u
source_folder=${CONVOY_SOURCE:-$(cd "$(dirname "$0")/../.." && pwd)}
build=${CONVOY_BUILD:-$source_folder/build}
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
"${CONVOY_PYTHON:-/usr/bin/python3}" "$source_folder/tests/parity/rules.py" --tool "$build/tests/rules_dump" \
    --work "$work"
