#!/bin/bash
# Checkpoints of TensorFlow's Saver with SSD320's variables, and of slim's resnet_v1_50; see long_tensorflow.py.
set -u
. "$(dirname "$0")/support_python.sh"
find_python "tensorflow:tensorflow-cpu==2.15.1" "numpy<2"
export TF_CPP_MIN_LOG_LEVEL=2 CUDA_VISIBLE_DEVICES= TF_ENABLE_ONEDNN_OPTS=0
exec "$python" "$CONVOY_SOURCE/tests/parity/long_tensorflow.py" "$CONVOY"
