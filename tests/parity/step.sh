#!/bin/bash
# Training steps of resnet18 and resnet50 on the cpu backend against PyTorch; see step.py for what is compared and how.
# The two run side by side: most of the time goes into PyTorch's float64, which uses one core.
set -u
source_folder=${CONVOY_SOURCE:-$(cd "$(dirname "$0")/../.." && pwd)}
build=${CONVOY_BUILD:-$source_folder/build}
python=${CONVOY_PYTHON:-/usr/bin/python3}
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT

run() { # ARCH
    "$python" "$source_folder/tests/parity/step.py" --tool "$build/tests/step_dump" --work "$work" --arch "$1" \
        --size 64 --device cpu >"$work/$1.log" 2>&1
}

run resnet18 &
first=$!
run resnet50
second_status=$?
wait $first
first_status=$?
cat "$work/resnet18.log" "$work/resnet50.log"
if [ $first_status -eq 77 ] || [ $second_status -eq 77 ]; then
    exit 77
fi
[ $first_status -eq 0 ] && [ $second_status -eq 0 ]
