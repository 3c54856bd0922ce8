#!/bin/bash
# TFRecords and the preprocessing of TensorFlow's program against TensorFlow itself; see long_tfrecord.py.
set -u
data=${CONVOY_TEST_DATA:-}
if [ ! -d "$data/imagenet-samples" ] || [ ! -d "$data/imagenette-64" ]; then
    echo "no sample images (CONVOY_TEST_DATA)"
    exit 77
fi
. "$(dirname "$0")/support_python.sh"
find_python "tensorflow:tensorflow-cpu==2.15.1" "numpy<2"
export TF_CPP_MIN_LOG_LEVEL=2 CUDA_VISIBLE_DEVICES= TF_ENABLE_ONEDNN_OPTS=0
exec "$python" "$CONVOY_SOURCE/tests/parity/long_tfrecord.py" "$CONVOY" "$CONVOY_BUILD/tests/dump_transform" "$data"
