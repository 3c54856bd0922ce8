#!/bin/bash
# --sync-bn where nothing but the gradients, which are fp32 on every device, is rounded: the reference backend in fp64;
# and a detector for twenty steps.
. "$(dirname "$0")/support_common.sh"
. "$(dirname "$0")/support_sync_bn.sh"
if sanitized; then skip_part_unavoidable "the reference backend takes an hour with sanitizers"; finish; fi
"$convoy" -q dataset shapes data --train-per-class 8 --val-per-class 1 --image-size 72 || fail "no data"
small="data --arch resnet18 --image-size 64 --last-bn-0-init --lr 0.05 --epochs 2 --device ref --precision fp64 --sync-bn"
share one 1 8 $small
for n in 2 4; do
    share ranks$n $n $((8 / n)) $small
    near one ranks$n 20 2e-6
done
"$convoy" -q dataset shapes boxes --boxes --train-images 160 --val-images 2 --image-size 96 || fail "no boxes"
boxes="boxes --arch ssd320 --image-size 64 --epochs 1 --lr-schedule step --momentum 0"

# The reference takes a minute for each step.
share ref-1 1 8 $boxes --lr 0.000001 --prof 2 --device ref --sync-bn
for n in 2 4; do
    share ref-$n $n $((8 / n)) $boxes --lr 0.000001 --prof 2 --device ref --sync-bn
    near ref-1 ref-$n 2 5e-6
done

# In fp32 with weights that stay: twenty batches. With weights that move, random heads make everything of rounding: ranks
# are as far from one process as that one is from itself with another number of threads, where that adds in another order;
# and where it does not, as far as with weights that stay.
share held-1 1 8 $boxes --lr 1e-12 --prof 20 --device cpu --sync-bn
share moved-1 1 8 $boxes --lr 0.000001 --prof 20 --device cpu --sync-bn
share threads 1 8 $boxes --lr 0.000001 --prof 20 --device cpu --sync-bn --threads 2
rounding=$(apart moved-1 threads 20)
echo "moved-1 and threads: $rounding apart in 20 steps"
for n in 2 4; do
    share held-$n $n $((8 / n)) $boxes --lr 1e-12 --prof 20 --device cpu --sync-bn
    near held-1 held-$n 20 2e-6
    share moved-$n $n $((8 / n)) $boxes --lr 0.000001 --prof 20 --device cpu --sync-bn
    near moved-1 moved-$n 20 "$(awk -v r="$rounding" 'BEGIN { print (2 * r > 2e-6 ? 2 * r : 2e-6) }')"
done
share apart 2 4 $boxes --lr 1e-12 --prof 20 --device cpu
far held-1 apart 20 1e-3
finish
