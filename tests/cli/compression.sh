#!/bin/bash
# --gradient-compression: gradients that go from rank to rank in 16 bits. Training stays near the one without, all ranks
# must be told the same, and a resumed run is the one that was never stopped.
. "$(dirname "$0")/support_common.sh"
narrow
. "$(dirname "$0")/support_sync_bn.sh"
sanitized && epochs=2 || epochs=7
"$convoy" -q dataset shapes data --train-per-class 5 --val-per-class 1 --image-size 72 || fail "no data"

# 64 pixels: below, the last maps have one place, and batch norm makes much of any rounding within some steps.
small="--arch resnet18 --image-size 64 --lr 0.001 --lr-schedule linear --training-only --epochs $epochs"
two() { # NAME OPTIONS...: two ranks; the losses of every step go to NAME.csv
    expect 0 "$convoy" train --processes 2 --batch-size 8 --workers 1 --log-every-step "$1.csv" "${@:2}"
}
for type in none bf16 fp16; do
    two $type data $small --workspace $type --gradient-compression $type
    expect_text err "^flags .*gradient-compression $type"
done
checks=$((checks + 1))
cmp -s none.csv bf16.csv && fail "bf16 changes nothing"
cmp -s none.csv fp16.csv && fail "fp16 changes nothing"
cmp -s bf16.csv fp16.csv && fail "bf16 and fp16 are the same"
# Each sum of two gradients is off by at most 2^-9 (bf16) or 2^-12 of itself, sometimes up, sometimes down. The first
# step's loss does not know of it, the second one's by the learning rate times that. Later a network like this moves
# apart from itself with any rounding. Measured: 6e-7 and 3e-7 in step 2, 5e-5 and 3e-7 to step 4, 1.5e-2 and 5e-3 to step 20.
near none bf16 2 1e-5
near none fp16 2 1e-5
near none bf16 4 1e-3
near none fp16 4 1e-3
if ! sanitized; then
    near none bf16 20 5e-2
    near none fp16 20 2e-2
fi

# ---- resumed ----
two part data $small --workspace part --gradient-compression bf16 --run-epochs 1
two part --resume part
expect_same bf16.csv part.csv
expect_same bf16/checkpoint.safetensors part/checkpoint.safetensors

# ---- told differently ----
by_hand() { # RANK TYPE
    env RANK="$1" WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port "$convoy" -q train data $small --batch-size 8 \
        --workers 1 --workspace hand --comm-timeout 60 --gradient-compression "$2"
}
port=$((20000 + RANDOM % 10000))
by_hand 1 none >out1 2>err1 &
other=$!
expect_sentence 2 'option --gradient-compression is .*none.* on rank 1 and .*bf16.* on rank 0' by_hand 0 bf16
wait $other
rc=$?
checks=$((checks + 1))
[ $rc = 2 ] || fail "rank 1 did not refuse: $rc"
expect_sentence 2 'gradient-compression.*none, bf16|fp16' "$convoy" train data --gradient-compression fp8
finish
