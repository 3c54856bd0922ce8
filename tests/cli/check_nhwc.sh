#!/bin/bash
# The check device over channels-last images: every kernel of a training step and of inference, with groups and with
# squeeze-and-excitation, in bf16 (parity.step_nhwc has fp32); where the processor has none, tiles (AMX) in memory.
. "$(dirname "$0")/support_common.sh"
export CONVOY_CPU_LAYOUT=nhwc CONVOY_CPU_TILES=model CONVOY_KERNELS=first
small=(--image-size 32 --batch-size 2 --device check:cpu --iterations 1)

precisions=(fp32 bf16)
if without_bf16; then
    skip_part_unavoidable "a CPU without AVX-512"
    precisions=(fp32)
fi

for precision in "${precisions[@]}"; do
    expect 0 "$convoy" info se-resnext101-32x4d --plan --mode train --precision $precision --image-size 32 --batch-size 2 --runs 0
    expect_text out '^forward  conv2d .*:nhwc '
    expect_text out "^plan images  nhwc: CONVOY_CPU_LAYOUT\$"
    checks=$((checks + 1))
    # The gradient of the weights of the first layer packs an image of three channels by channels.
    [ "$(grep -c 'cpu\.reorder .*:nhwc\|cpu\.reorder .*nChw16c' out)" -le 1 ] || fail "$precision: images are laid out anew"
done
sanitized && finish # the reference takes minutes there
precision=${precisions[-1]}
expect 0 "$convoy" bench train --arch resnext50-32x4d "${small[@]}" --precision $precision
expect 0 "$convoy" bench infer --arch resnext50-32x4d "${small[@]}" --precision $precision
finish
