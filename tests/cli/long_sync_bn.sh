#!/bin/bash
# --sync-bn where nothing but the gradients, which are fp32 on every device, is rounded: the reference backend in fp64,
# and a detector there, whose images are fp32.
. "$(dirname "$0")/support_common.sh"
. "$(dirname "$0")/support_sync_bn.sh"
if sanitized; then skip_part_without_rights "the reference backend takes an hour with sanitizers"; finish; fi
"$convoy" -q dataset shapes data --train-per-class 8 --val-per-class 1 --image-size 72 || fail "no data"
small="data --arch resnet18 --image-size 64 --lr 0.001 --epochs 2 --device ref --precision fp64 --sync-bn"
share one 1 8 $small
for n in 2 4; do
    share ranks$n $n $((8 / n)) $small
    near one ranks$n 5 1e-6
    near one ranks$n 20 1e-2
done
"$convoy" -q dataset shapes boxes --boxes --train-images 12 --val-images 2 --image-size 96 || fail "no boxes"
boxes="boxes --arch ssd320 --image-size 64 --lr 0.001 --epochs 1 --lr-schedule step --device ref --sync-bn"
share detector 1 4 $boxes
for n in 2 4; do
    share detectors$n $n $((4 / n)) $boxes
    near detector detectors$n 2 2e-6 # the third step is chaos: the smallest maps have one place
done
finish
