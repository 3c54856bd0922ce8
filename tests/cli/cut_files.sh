#!/bin/bash
# Files that another program cuts off while they are mapped: a sentence, never the end of the process by a signal, and
# nothing is written from what is left of them.
. "$(dirname "$0")/support_common.sh"
narrow
shim=$CONVOY_BUILD/tests/libfault_shim.so
[ -e "$shim" ] || skip "the shim was not built"
sanitized && export ASAN_OPTIONS=${ASAN_OPTIONS:-}:verify_asan_link_order=0

make_shapes data 2 1
expect 0 tiny_train data --epochs 1 --workspace whole
expect 0 "$convoy" -q convert whole/checkpoint.safetensors whole.pth.tar
expect 0 "$convoy" -q dataset shapes boxes --boxes --train-images 2 --val-images 1
image=$(find data/val -name '*.jpg' | head -n 1)

# cut NUMBER FILE COMMAND...: the command, and FILE, a fresh copy of the whole one, loses its half at mapping NUMBER
cut() {
    local number=$1 file=$2
    shift 2
    expect_sentence 65 "$(basename "$file")\" was cut off while it was read" env LD_PRELOAD="$shim" CONVOY_FAULT=cut \
        CONVOY_FAULT_AT="$number" "$@"
}

fresh() {
    rm -rf run net.pth.tar
    cp -r whole run
    cp whole.pth.tar net.pth.tar
}

weights=run/checkpoint.safetensors
for command in "evaluate data" "classify $image" "info"; do
    for file in $weights net.pth.tar; do
        fresh
        option=--weights
        [ "$command" = info ] && option=
        # shellcheck disable=SC2086
        cut 1 $file "$convoy" -q $command $option $file
    done
done
for out in out.safetensors out.pth out.pth.tar out.onnx; do
    for file in $weights net.pth.tar; do
        fresh
        echo before >$out
        cut 1 $file "$convoy" -q convert $file $out
        [ "$(cat $out)" = before ] || fail "$out was written although $file was cut off"
        [ -z "$(find . -name 'out.*.tmp.*')" ] || fail "a part of $out was left"
    done
done
fresh # its first look is whether the checkpoint is whole: what is cut off then is seen when it is opened
expect_sentence 65 "checkpoint.safetensors\": .*truncated" env LD_PRELOAD="$shim" CONVOY_FAULT=cut CONVOY_FAULT_AT=1 \
    "$convoy" -q train data --resume run --epochs 2
fresh
cut 2 $weights "$convoy" -q train data --resume run --epochs 2
fresh
cut 1 net.pth.tar "$convoy" -q train data --arch resnet18 --image-size 32 --batch-size 10 --epochs 1 \
    --pretrained-weights net.pth.tar --workspace tuned
[ ! -e tuned/checkpoint.safetensors ] || fail "weights that were cut off were trained"
cp -r boxes cut_boxes
annotations=$(cd cut_boxes && find . -name '*train*.json' | head -n 1)
cut 1 "$annotations" "$convoy" -q train cut_boxes --arch ssd320 --image-size 320 --epochs 1 --workspace detector
finish
