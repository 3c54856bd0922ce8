#!/bin/bash
# The detection transform against numpy and TensorFlow; see boxes.py.
set -u
data=${CONVOY_TEST_DATA:-}
if [ ! -d "$data/coco-tiny" ]; then
    echo "no sample images (CONVOY_TEST_DATA)"
    exit 77
fi
. "$(dirname "$0")/support_python.sh"
find_python "tensorflow:tensorflow-cpu==2.15.1" "numpy<2"
export TF_CPP_MIN_LOG_LEVEL=2 CUDA_VISIBLE_DEVICES= TF_ENABLE_ONEDNN_OPTS=0
exec "$python" "$CONVOY_SOURCE/tests/parity/boxes.py" "$CONVOY_BUILD/tests/boxes_dump" \
    "$data/coco-tiny/annotations/instances_train2017.json" "$data/coco-tiny/train2017" 320 4 --tensorflow
