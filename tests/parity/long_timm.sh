#!/bin/bash
# The squeeze-and-excitation networks of networks.py against timm's; see long_timm.py.
set -u
. "$(dirname "$0")/support_python.sh"
find_python "timm==0.6.13" "numpy<2"
exec "$python" "$CONVOY_SOURCE/tests/parity/long_timm.py" "$CONVOY_BUILD/tests/list_parameters"
