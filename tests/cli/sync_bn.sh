#!/bin/bash
# --sync-bn: N ranks with batches of B compute what one does with N x B, for twenty steps. Residual branches that begin at 0
# keep the network from making much of rounding.
. "$(dirname "$0")/support_common.sh"
narrow
. "$(dirname "$0")/support_sync_bn.sh"
"$convoy" -q dataset shapes data --train-per-class 8 --val-per-class 1 --image-size 72 || fail "no data"
small="data --arch resnet18 --image-size 64 --last-bn-0-init --epochs 2 --device cpu"
if sanitized; then # twenty steps would take minutes
    share one 1 4 $small --lr 0.05 --sync-bn --epochs 1 --prof 2
    share two 2 2 $small --lr 0.05 --sync-bn --epochs 1 --prof 2
    near one two 2 2e-6
    finish
fi

share one 1 8 $small --lr 0.05 --sync-bn
share two 2 4 $small --lr 0.05 --sync-bn
share four 4 2 $small --lr 0.05 --sync-bn
share apart 2 4 $small --lr 0.05
near one two 20 2e-6 # measured: 1e-7
near one four 20 2e-6
far one apart 20 1e-2 # 5e-2

# In bf16 a maximum or the sign before a ReLU may be another one after another rounding.
if without_bf16; then
    skip_part_unavoidable "a CPU without AVX-512"
else
    wide share one16 1 8 $small --lr 0.01 --precision bf16 --sync-bn
    wide share two16 2 4 $small --lr 0.01 --precision bf16 --sync-bn
    near one16 two16 20 5e-3 # measured: 4e-4, four ranks 7e-4; 5e-2 without --sync-bn
fi

# A detector: what its losses are divided by is of all images together. From the third step on its random heads make
# everything of rounding, as they do when one process has another number of threads.
"$convoy" -q dataset shapes boxes --boxes --train-images 12 --val-images 2 --image-size 96 || fail "no boxes"
boxes="boxes --arch ssd320 --image-size 64 --lr 0.001 --epochs 1 --lr-schedule step --device cpu"
share detector 1 4 $boxes --sync-bn
share detectors 2 2 $boxes --sync-bn
near detector detectors 2 2e-6

expect_sentence 2 "option --sync-bn needs --device cpu or ref" "$convoy" -q train data --processes 2 --sync-bn \
    --device check:cpu
finish
