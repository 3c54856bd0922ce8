#!/bin/bash
# SSD320 learns the 24 training images of coco-tiny by heart: trained on them without augmentation and asked about them, it
# finds their objects with an AP of at least 0.8, as pycocotools counts it from the list that `convoy detect` prints.
# 660 steps of 4 images in bf16 (fp32 without AVX-512), from random weights: about a quarter of an hour on two cores. By
# RMSprop, whose steps are as long for what has small gradients: one in fifteen matched anchors belongs to an object that
# no anchor overlaps by half, as every second one is; SGD has hardly begun with them when it is done with the rest.
# The rate is not yet at nothing in the end: they are still being learnt then.
set -eu
. "$(dirname "$0")/support_python.sh"
data=${CONVOY_TEST_DATA:-}/coco-tiny
if [ ! -d "$data" ]; then
    echo "skipped: CONVOY_TEST_DATA has no coco-tiny"
    exit 77
fi
find_python pycocotools
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
grep -q avx512 /proc/cpuinfo && precision=bf16 || precision=fp32
"$CONVOY" -q train "$data" --arch ssd320 --augmentation off --steps 660 --schedule-steps 800 --warmup-steps 40 \
    --batch-size 4 --optimizer rmsprop --rmsprop-alpha 0.99 --rmsprop-eps 0.0003 --lr 0.00006 --warmup-lr 0.000005 \
    --weight-decay 0 --bn-momentum 0.04 --precision $precision --training-only --workspace "$work/run" >/dev/null
"$CONVOY" -q detect "$data/train2017" --weights "$work/run/checkpoint.safetensors" --threshold 0 --format coco \
    >"$work/found.json"
"$python" - "$data/annotations/instances_train2017.json" "$work/found.json" <<'END'
import sys
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

truth = COCO(sys.argv[1])
judge = COCOeval(truth, truth.loadRes(sys.argv[2]), "bbox")
judge.evaluate()
judge.accumulate()
judge.summarize()
sys.exit(0 if judge.stats[0] >= 0.8 else f"AP {judge.stats[0]:.3f}, not 0.8")
END
