#!/bin/bash
# --sync-bn where nothing but the gradients, which are fp32 on every device, is rounded: the reference backend in fp64;
# and a detector for twenty steps, at a rate so low that its random heads do not make everything of rounding.
. "$(dirname "$0")/support_common.sh"
. "$(dirname "$0")/support_sync_bn.sh"
if sanitized; then skip_part_without_rights "the reference backend takes an hour with sanitizers"; finish; fi
"$convoy" -q dataset shapes data --train-per-class 8 --val-per-class 1 --image-size 72 || fail "no data"
small="data --arch resnet18 --image-size 64 --last-bn-0-init --lr 0.05 --epochs 2 --device ref --precision fp64 --sync-bn"
share one 1 8 $small
for n in 2 4; do
    share ranks$n $n $((8 / n)) $small
    near one ranks$n 20 2e-6
done
"$convoy" -q dataset shapes boxes --boxes --train-images 160 --val-images 2 --image-size 96 || fail "no boxes"
boxes="boxes --arch ssd320 --image-size 64 --epochs 1 --lr-schedule step"
for device in ref cpu; do
    steps=2 # the reference takes a minute for each
    [ $device = cpu ] && steps=20
    share $device-1 1 8 $boxes --lr 0.000001 --prof $steps --device $device --sync-bn
    for n in 2 4; do
        share $device-$n $n $((8 / n)) $boxes --lr 0.000001 --prof $steps --device $device --sync-bn
        near $device-1 $device-$n $steps 5e-4
    done
done
share apart 2 4 $boxes --lr 0.000001 --prof 20 --device cpu
far cpu-1 apart 20 1e-3
finish
