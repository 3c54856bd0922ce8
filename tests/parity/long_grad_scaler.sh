#!/bin/bash
# The rules of the loss scale beside PyTorch's GradScaler; see long_grad_scaler.py. PyTorch 2.3 is not installed for it (it
# takes gigabytes): CONVOY_PYTHON names an interpreter that has it.
set -u
source_folder=${CONVOY_SOURCE:-$(cd "$(dirname "$0")/../.." && pwd)}
build=${CONVOY_BUILD:-$source_folder/build}
for python in "${CONVOY_PYTHON:-}" /usr/bin/python3 "$build/python/bin/python"; do
    [ -n "$python" ] && "$python" -c 'import torch; torch.amp.GradScaler("cpu")' 2>/dev/null || continue
    OMP_NUM_THREADS=1 exec "$python" "$source_folder/tests/parity/long_grad_scaler.py" --tool "$build/tests/scaler_dump"
done
echo "skipped: GradScaler for CPUs needs PyTorch 2.3 or later; CONVOY_PYTHON names a python that has it"
exit 77
