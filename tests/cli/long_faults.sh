#!/bin/bash
# Calls that fail: CONVOY_TEST_SAMPLES of each kind and command (200; all: every one, an hour of one core).
. "$(dirname "$0")/support_faults.sh"
samples=${CONVOY_TEST_SAMPLES:-200}
[ "$samples" != all ] || samples=1000000
RANDOM=${CONVOY_TEST_SEED:-1}
make_detector
for scenario in ${CONVOY_TEST_SCENARIOS:-pack tfrecord convert quantize evaluate detect train resume ranks rank0 rank1}; do
    for kind in ${CONVOY_TEST_FAULTS:-alloc open read write sync rename mmap thread socket short interrupt}; do
        sweep "$scenario" "$kind" "$samples"
    done
done
record
wrong=$(check_order)
[ -s recorded/log ] && [ -z "$wrong" ] || fail "the order of writing: ${wrong:-nothing was recorded}"
for number in $(seq "$(wc -l <recorded/log)"); do
    check_loss "$number" names
    check_loss "$number" folder
done
echo "$losses losses of power"
summary
finish
