#!/bin/bash
# resume.sh again and again with other moments to be killed at, and a disk that fills up at another place each time.
. "$(dirname "$0")/support_common.sh"
rounds=${CONVOY_TEST_ROUNDS:-20}
seed=${CONVOY_TEST_SEED:-$$}
script=$sources/tests/cli/resume.sh

for round in $(seq "$rounds"); do
    expect 0 env CONVOY_TEST_SEED=$((seed + round)) bash "$script" || fail "round $round, CONVOY_TEST_SEED=$((seed + round))"
done

# ---- writing fails: at the first checkpoint, in its middle, while a log grows; then the disk has room again ----
make_shapes data 3 1
train() (
    trap '' XFSZ # too long a file is an error of the write then, not a signal
    [ "$1" = unlimited ] || ulimit -f "$1"
    shift
    exec "$convoy" -q train ../data --arch resnet18 --image-size 32 --batch-size 10 --epochs 2 --lr 0.02 --workers 2 \
        --checkpoint-every 1 --workspace run --log-every-step run/steps.csv "$@"
)
mkdir calm && cd calm || exit 1
expect 0 train unlimited
size=$(($(stat -c %s run/checkpoint.safetensors) / 1024))
cd "$work" || exit 1
for limit in 1 2 8 $((size / 100)) $((size / 10)) $((size / 2)) $((size - 1)); do # in KiB; 0 would be too little for the sentence itself
    rm -rf full && mkdir full && cd full || exit 1
    expect '73|74' train "$limit"
    expect_text "$work/err" '^convoy: cannot (create|write) '
    leftovers=$(find . -name '*.tmp*' | head -n 1)
    [ -z "$leftovers" ] || fail "limit $limit: a part of a file was left: $leftovers"
    resume=()
    [ -d run ] && [ -n "$(find run -type f ! -name .lock)" ] && resume=(--resume run)
    expect 0 train unlimited ${resume[@]+"${resume[@]}"}
    cd "$work" || exit 1
    expect_same calm/run/steps.csv full/run/steps.csv
    expect_same calm/run/checkpoint.safetensors full/run/checkpoint.safetensors
done
finish
