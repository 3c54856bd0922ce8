#!/bin/bash
# A disk that fills up while a checkpoint is written: exit code 74, the old checkpoint survives and can be resumed.
. "$(dirname "$0")/support_common.sh"
narrow
make_shapes data 2 1
expect 0 tiny_train data --epochs 2 --run-epochs 1 --workspace run
cp run/checkpoint.safetensors before.safetensors
size=$(stat -c %s before.safetensors)

# ---- a limit on the size of files: needs no rights ----
limited() ( # KIB FLAG...
    trap '' XFSZ
    ulimit -f "$1"
    shift
    "$convoy" "$@" train data --resume run
)
expect_sentence 74 'checkpoint|safetensors' limited $((size / 2048)) -q
expect_same before.safetensors run/checkpoint.safetensors
leftovers=$(find run -name '*.tmp*' -o -name '*.part*' | head -n 1)
[ -z "$leftovers" ] || fail "a part of a file was left: $leftovers"
# The best weights fit, the checkpoint does not: the epoch is told of, for its record is there.
expect 74 limited $((size * 15 / 16 / 1024))
expect_text err 'cannot write "run/checkpoint'
expect_text err '^epoch  *2/2 '
expect_same before.safetensors run/checkpoint.safetensors

# ---- a file system that is really full ----
mkdir disk
if mount -t tmpfs -o size=$((size * 5 / 4 / 1024))k tmpfs disk 2>/dev/null; then
    trap 'umount "$work/disk"; rm -rf "$work"' EXIT
    mkdir disk/run
    cp run/checkpoint.safetensors disk/run/
    expect_sentence 74 'disk/run' "$convoy" -q train data --resume disk/run
    expect_same before.safetensors disk/run/checkpoint.safetensors
    # With room again the training continues from there.
    mount -o remount,size=$((size * 6 / 1024))k disk
    expect 0 "$convoy" -q train data --resume disk/run
    expect_text out '^convoy classify '
    # The built-in data set appears whole or not at all.
    rm -r disk/run
    mount -o remount,size=64k disk
    for boxes in '' --boxes; do
        # shellcheck disable=SC2086 # no word where it is empty
        expect_sentence 74 'No space left' "$convoy" -q dataset shapes disk/new/set $boxes
        checks=$((checks + 1))
        [ -z "$(ls -A disk)" ] || fail "a part of a data set was left: $(find disk | head -n 3)"
    done
else
    skip_part_unavoidable "a tmpfs cannot be mounted here (root only); the limit on file sizes was tested"
    expect 0 "$convoy" -q train data --resume run
fi

# ---- the checkpoint of the first epoch did not find room, its kept copy did ----
gathered() { "$convoy" -q train data --arch resnet18 --image-size 32 --batch-size 10 --lr 0.05 --warmup 0 --epochs 3 \
    --gather-checkpoints -1 "$@"; }
expect 0 gathered --workspace calm
expect 0 gathered --workspace kept --run-epochs 1
rm kept/checkpoint.safetensors
expect 0 "$convoy" -q train --resume kept --run-epochs 1
expect_text err 'kept/checkpoint.safetensors.*: "kept/checkpoint_0000.safetensors" is taken instead'
truncate_to kept/checkpoint.safetensors 60 # and of two that are cut off, the one before them
: >kept/checkpoint_0001.safetensors
expect 0 "$convoy" -q train --resume kept --evaluate
expect_text err 'checkpoint_0000.safetensors" is taken instead'
expect 0 "$convoy" -q train --resume kept
expect_text err 'kept/checkpoint.safetensors".*truncated.*: "kept/checkpoint_0000.safetensors" is taken instead'
expect 0 "$convoy" -q train --resume kept # beyond the end of the run that was cut off
expect_same calm/checkpoint.safetensors kept/checkpoint.safetensors
expect_same calm/metrics.csv kept/metrics.csv
expect_same calm/model_best.safetensors kept/model_best.safetensors
# Damaged after the end of the training, it is written again, though there is nothing left to do.
truncate_to kept/checkpoint.safetensors 60
expect 0 "$convoy" -q train --resume kept
expect_text err '"kept/checkpoint_0002.safetensors" is taken instead, and checkpoint.safetensors is written again'
expect_same calm/checkpoint.safetensors kept/checkpoint.safetensors
truncate_to kept/checkpoint.safetensors 60
rm kept/checkpoint_*
expect_sentence 65 'kept/checkpoint.safetensors' "$convoy" -q train --resume kept
finish
