#!/bin/bash
# Fake quantisation against PyTorch: the operation and 20 training steps of a small network; see quantize.py.
. "$(dirname "$0")/support_step.sh"

"$python" "$source_folder/tests/parity/quantize.py" --tools "$build/tests" --work "$work"
