#!/bin/bash
# --decode: fast changes training images (where they are large enough), not the validation; a run that continues keeps
# its way; what it is not for is refused.
. "$(dirname "$0")/support_common.sh"
narrow
"$convoy" -q dataset shapes data --train-per-class 1 --val-per-class 1 --image-size 200 || fail "no data set"
train() { tiny_train data --epochs 2 --min-crop-area 0.9 "$@"; }

expect 0 train --workspace fast --decode fast
expect 0 train --workspace halves --decode fast --run-epochs 1
expect 0 "$convoy" -q train --resume halves
expect_same fast/checkpoint.safetensors halves/checkpoint.safetensors
expect_same fast/metrics.csv halves/metrics.csv
expect_text fast/options.json '"decode": "fast"'
expect 0 "$convoy" evaluate data --weights fast/model_best.safetensors
if ! sanitized; then
    expect 0 train --workspace exact
    checks=$((checks + 1))
    ! cmp -s exact/metrics.csv fast/metrics.csv || fail "--decode fast changes nothing"
fi

expect_sentence 2 'decode is exact, fast or gpu, not' train --workspace no --decode quick
expect_sentence 2 "--decode fast is for the crops of torchvision's" train --workspace no --decode fast --data-backend tensorflow
expect_sentence 2 "--decode fast is for the crops of torchvision's" train --workspace no --decode fast --augmentation off
for decode in fast exact; do
    expect 0 "$convoy" bench data data --image-size 32 --workers 1 --seconds 0.2 --decode $decode
done
expect 0 "$convoy" bench data data --split val --image-size 32 --workers 1 --seconds 0.2 --decode fast
finish
