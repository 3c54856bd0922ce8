#!/bin/bash
# --gpus: a process for each (emulated) GPU with the cores near to it; what other launchers start takes the GPU of its
# place on the machine.
. "$(dirname "$0")/support_common.sh"
narrow
emulated=${CONVOY_BUILD:?}/tests/emulated_cuda
make_shapes data 1 1
options="--arch resnet18 --image-size 32 --batch-size 5 --epochs 1 --prof 1 --training-only --workers 1 --precision fp32
    --no-checkpoints"
train() {
    # shellcheck disable=SC2086
    "$convoy" train data $options "$@"
}

# ---- what is refused ----
CONVOY_CUDA_MODULE=$work/missing.so expect_sentence 69 'the CUDA module cannot be loaded' train --gpus all
export CONVOY_CUDA_MODULE=$emulated/libconvoy_cuda_emulated.so
CONVOY_EMULATED_GPUS=0 expect_sentence 69 'no GPU is visible to this process' train --gpus 1
export CONVOY_EMULATED_GPUS=2 CONVOY_NCCL=$emulated/libnccl_emulated.so
expect_sentence 69 'option --gpus 3: this process sees 2 GPUs' train --gpus 3
expect_sentence 69 'option --gpus 0,2: this process sees 2 GPUs' train --gpus 0,2
expect 0 "$convoy" info
expect_text out '^cuda +emulated GPU.*, NCCL 2\.28\.9,'
CONVOY_NCCL='' expect 0 "$convoy" info
expect_text out '^cuda +emulated GPU.*, no NCCL,'
for wrong in 0 -1 x 1x 0,0 0, ,1 1,x 1025; do
    expect_sentence 2 'option --gpus is "all", how many' train --gpus "$wrong"
done
expect_sentence 2 'options --gpus and --processes exclude each other' train --gpus 2 --processes 2
expect_sentence 2 'options --gpus and --device "cpu" exclude each other' train --gpus 2 --device cpu
for count in 1 2; do
    expect_sentence 2 'option --gpus starts all processes itself' env RANK=0 WORLD_SIZE=2 "$convoy" train data --gpus $count
done
expect_sentence 2 'option --gpus connects its processes without MPI' env CONVOY_COMM=mpi "$convoy" train data --gpus 2

# ---- processes with a GPU each, and cores near to it ----
mapfile -t cores < <(sed -n 's/^Cpus_allowed_list:[[:space:]]*//p' /proc/self/status | tr ',' '\n' |
    while IFS=- read -r first last; do seq "$first" "${last:-$first}"; done)
near= first=${cores[0]} second=${cores[0]} shares='sharing 1 cores'
if [ "${#cores[@]}" -ge 2 ]; then
    first=${cores[1]} second=${cores[0]}
    near=$first/$second shares="cores $first \\| $second"
fi
CONVOY_EMULATED_CORES=$near expect 0 train --gpus all --workspace all --log-every-step all.csv
expect_text err "^2 processes, GPUs 0 \| 1, $shares\$"
expect_text err "rank 0 on .*: cuda:0 \(emulated GPU\), cores $first\$"
expect_text err "rank 1 on .*: cuda:1 \(emulated GPU\), cores $second\$"
expect_text err 'gradients by NCCL'
expect_text all/rank-1.log 'this is rank 1 of 2'
sanitized && finish
expect 0 train --gpus 1,0 --workspace list --log-every-step list.csv
expect_text err "rank 0 on .*: cuda:1 \(emulated GPU\)"
expect_same all.csv list.csv

# ---- stopped, and gone on with as it says: each rank on its own GPU again ----
(
    set -m
    # shellcheck disable=SC2086
    CONVOY_COMM_PORT=4000 "$convoy" train data ${options/--no-checkpoints/} --checkpoint-every 1 --epochs 1000 --gpus 0,1 --workspace stopped 2>err &
    for _ in $(seq 1200); do
        [ -e stopped/checkpoint.safetensors ] && break
        kill -0 $! 2>/dev/null || break
        sleep 0.05
    done
    kill -TERM $!
    wait $!
)
rc=$?
checks=$((checks + 1))
[ $rc = 75 ] || { fail "SIGTERM ended with $rc instead of 75"; show; }
expect_text err 'to continue: convoy train --resume ".*" --gpus 0,1$'
expect 0 "$convoy" train --resume stopped --gpus 0,1 --run-epochs 1
expect_text err "rank 0 on .*: cuda:0 "
expect_text err "rank 1 on .*: cuda:1 "
expect_text err 'gradients by NCCL'

expect 0 train --gpus 1 --workspace one
expect_text err '^device .*emulated GPU'
grep -q rank err && fail "one GPU needs no ranks"

# ---- other launchers ----
# by_hand WORLD OPTION...: exit codes in ${codes[@]}, what rank r says in out.r
by_hand() {
    local world=$1 port=$((20000 + RANDOM % 10000)) pids=() rank
    shift
    codes=()
    for rank in $(seq 0 $((world - 1))); do
        RANK=$rank WORLD_SIZE=$world MASTER_ADDR=127.0.0.1 MASTER_PORT=$port train --workspace hand "$@" >"out.$rank" 2>&1 &
        pids+=($!)
    done
    for rank in "${pids[@]}"; do
        wait "$rank"
        codes+=($?)
    done
}
by_hand 2 --device cuda
checks=$((checks + 1))
[ "${codes[*]}" = '0 0' ] || fail "ranks of another launcher ended with ${codes[*]}"
expect_text out.0 'rank 1 on .*: cuda:1 '
by_hand 3 --device cuda
checks=$((checks + 1))
[ "${codes[*]}" = '69 69 69' ] || fail "three ranks on two GPUs ended with ${codes[*]}"
expect_text out.0 'none is left for rank 2'
finish
