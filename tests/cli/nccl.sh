#!/bin/bash
# Two ranks on two emulated GPUs, with a stand-in for NCCL between them: the losses of two ranks on the CPU, the same bits
# as by way of the host, and nobody who hangs when a sum fails, is lost, or waits for a rank that does not come.
. "$(dirname "$0")/support_common.sh"
narrow
emulated=${CONVOY_BUILD:?}/tests/emulated_cuda
export CONVOY_CUDA_MODULE=$emulated/libconvoy_cuda_emulated.so CONVOY_EMULATED_GPUS=2
nccl=$emulated/libnccl_emulated.so
make_shapes data 2 1

# ranks NAME DEVICE OPTION...: both ranks in folder NAME; exit codes in $rc0 and $rc1, what they say in NAME/out0, NAME/out1.
# DEVICE "cuda": each rank has a GPU of its own.
ranks() {
    local folder=$1 device=$2 port=$((20000 + RANDOM % 10000)) rank own pids=()
    shift 2
    mkdir -p "$folder"
    for rank in 1 0; do
        own=$device
        [ "$device" != cuda ] || own=cuda:$rank
        (cd "$folder" && RANK=$rank WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port exec "$convoy" train ../data \
            --arch resnet18 --image-size 32 --batch-size 5 --lr 0.05 --warmup 0 --last-bn-0-init --training-only \
            --epochs 2 --workers 1 --workspace run --log-every-step run/steps.csv --device $own "$@" >out$rank 2>&1) &
        pids[$rank]=$!
    done
    wait "${pids[0]}"
    rc0=$?
    wait "${pids[1]}"
    rc1=$?
}

# good NAME ...: and both must succeed.
good() {
    ranks "$@"
    checks=$((checks + 1))
    [ $rc0 = 0 ] && [ $rc1 = 0 ] && return 0
    fail "ranks ended with $rc0 and $rc1: $*"
    cat "$1/out0" "$1/out1" >&2
}

# ends NAME SECONDS PATTERN ...: both fail within the time, for the same reason.
ends() {
    local folder=$1 limit=$2 pattern=$3 begin=$SECONDS rank
    shift 3
    ranks "$folder" cuda --precision fp32 "$@"
    checks=$((checks + 1))
    [ $rc0 = 1 ] && [ $rc1 = 1 ] || fail "ranks ended with $rc0 and $rc1: $folder"
    [ $((SECONDS - begin)) -le "$limit" ] || fail "it took $((SECONDS - begin)) s to end: $folder"
    for rank in 0 1; do
        expect_text "$folder/out$rank" "^convoy: .*$pattern" || cat "$folder/out$rank" >&2
    done
}

# like_cpu NAME CPU STEPS: another order of sums on another device; the loss is about 2.4.
like_cpu() {
    checks=$((checks + 1))
    paste -d, "$2/run/steps.csv" "$1/run/steps.csv" | awk -F, -v steps="$3" '
        NR > 1 { d = $3 - $7; if (d < 0) d = -d; if (d > worst) worst = d }
        END { if (NR != steps + 1 || !(worst <= 1e-4)) { print NR " rows, losses differ by " worst; exit 1 } }' ||
        fail "the losses of $1 are not those on the CPU"
}

# ---- a sum that fails, late ones ----
export CONVOY_NCCL=$nccl
CONVOY_EMULATED_NCCL='error 1 2' ends failed 60 "gradients failed on this rank's GPU: NCCL says: .*cable was cut"
expect_text failed/out0 '^convoy: rank 1 on host '
if sanitized; then
    good direct cuda --precision fp32 --epochs 1
    expect_text direct/out0 'gradients by NCCL'
    finish
fi
CONVOY_EMULATED_NCCL='stall 1 2 6' ends stalled 60 'rank 1 on host .* did not come to where the other ranks wait within 3 s' \
    --comm-timeout 3
CONVOY_EMULATED_NCCL='absent 1 0 60' ends absent 20 'did not arrive within 3 s' --comm-timeout 3
CONVOY_EMULATED_NCCL='clings 1 2' ranks clinging cuda --precision fp32
checks=$((checks + 1))
[ $rc0 = 1 ] && [ $rc1 = 1 ] || fail "with an NCCL that does not return ranks ended with $rc0 and $rc1"
expect_text clinging/out1 '^convoy: .*cable was cut.*; NCCL does not let go of its sums$'
expect_text clinging/out0 '^convoy: rank 1 on host .* ended without a word'

# ---- where NCCL cannot be had the host sums, and says why ----
unset CONVOY_NCCL
good host cuda --precision fp32
expect_text host/out0 "way of the host's memory, after the backward pass: rank 0: NCCL .* is not there"
grep -q 'gradients by' host/out0 && fail "who sums is said wrongly"
export CONVOY_NCCL=none
good unwanted cuda --precision fp32 --prof 1 --epochs 1 --no-checkpoints
expect_text unwanted/out0 "way of the host's memory, after the backward pass: rank 0: CONVOY_NCCL=none"
export CONVOY_NCCL=$nccl
good shared cuda:0 --precision fp32 --prof 1 --epochs 1 --no-checkpoints
expect_text shared/out0 'ranks 0 and 1 share a GPU'

# ---- the losses, on GPUs that do their work as late as can be ----
good cpu cpu --precision fp32
CONVOY_EMULATED_LATE=1 good direct cuda --precision fp32
expect_text direct/out0 'gradients by NCCL'
expect_same host/run/steps.csv direct/run/steps.csv
expect_same host/run/checkpoint.safetensors direct/run/checkpoint.safetensors
like_cpu direct cpu 4

# Steps of two passes: recordings of the pass are the same with and without sums.
CONVOY_EMULATED_LATE=1 good two_passes cuda --precision fp32 --optimizer-batch-size 20
good two_passes_cpu cpu --precision fp32 --optimizer-batch-size 20
like_cpu two_passes two_passes_cpu 2

# Gradients that travel in 16 bits: the first loss does not know of it, the second by little (tests/cli/compression.sh
# says how much; here the last maps have one place, where batch norm makes ten times of it).
for type in bf16 fp16; do
    good $type cuda --precision fp32 --prof 1 --no-checkpoints --gradient-compression $type
    expect_text $type/out0 'gradients by NCCL'
    paste -d, <(head -n 2 direct/run/steps.csv) <(head -n 2 $type/run/steps.csv) | awk -F, 'NR == 2 && $3 != $7 { exit 1 }' ||
        fail "$type changes the first loss"
done
checks=$((checks + 1))
cmp -s bf16/run/steps.csv fp16/run/steps.csv && fail "bf16 and fp16 are the same"

# A loss scale that is too large: all ranks leave out the same steps, else the run fails.
good high cuda --amp --static-loss-scale 1e30 --prof 1
grep -aoE 'skipped_steps[\\": ]*[0-9]+' high/run/checkpoint.safetensors | grep -qE '[1-9][0-9]*$' ||
    fail "no step was left out with a loss scale of 1e30"
finish
