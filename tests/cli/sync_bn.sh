#!/bin/bash
# --sync-bn: N ranks with batches of B compute what one does with N x B. Rounding differs, and a network this small makes
# much of it within some steps: the first steps must agree to the rounding of fp32, twenty to a hundredth.
. "$(dirname "$0")/support_common.sh"
. "$(dirname "$0")/support_sync_bn.sh"
"$convoy" -q dataset shapes data --train-per-class 8 --val-per-class 1 --image-size 72 || fail "no data"
small="data --arch resnet18 --image-size 64 --lr 0.001 --epochs 2 --device cpu"
if sanitized; then # twenty steps would take minutes
    share one 1 4 $small --sync-bn --epochs 1 --prof 2
    share two 2 2 $small --sync-bn --epochs 1 --prof 2
    near one two 2 2e-6
    finish
fi

share one 1 8 $small --sync-bn
share two 2 4 $small --sync-bn
share four 4 2 $small --sync-bn
share apart 2 4 $small
near one two 5 2e-6 # measured: 1e-7
near one two 20 1e-2 # 2e-3
near one four 5 2e-6
near one four 20 1e-2
checks=$((checks + 1)) # what is tested must be there to be tested
awk -v d="$(apart one apart 5)" 'BEGIN { exit !(d > 0.01) }' || fail "without --sync-bn the ranks agree too"

# A detector: what its losses are divided by is of all images together.
"$convoy" -q dataset shapes boxes --boxes --train-images 12 --val-images 2 --image-size 96 || fail "no boxes"
boxes="boxes --arch ssd320 --image-size 64 --lr 0.001 --epochs 1 --lr-schedule step --device cpu"
share detector 1 4 $boxes --sync-bn
share detectors 2 2 $boxes --sync-bn
near detector detectors 2 2e-6 # the third step is chaos: the smallest maps have one place, so that 4 values are normalised

expect_sentence 2 "option --sync-bn needs --device cpu or ref" "$convoy" -q train data --processes 2 --sync-bn \
    --device check:cpu
finish
