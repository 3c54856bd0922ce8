#!/bin/bash
# Calls that fail, a sample; long_faults.sh has all of them.
. "$(dirname "$0")/support_faults.sh"
RANDOM=1
for kind in open write sync rename; do
    sweep pack $kind 2
done
sweep convert sync 2
sweep convert write 2
sweep tfrecord alloc 6
sweep tfrecord short 2
sweep resume sync 1
make_detector
for scenario in evaluate detect quantize train resume ranks rank0 rank1; do
    sweep $scenario alloc 6
    sweep $scenario mmap 2
    sweep $scenario open 2
done
for scenario in rank0 rank1; do
    sweep $scenario socket 4
    sweep $scenario short 2
    sweep $scenario interrupt 2
    sweep $scenario thread 6
done
check_fault pack alloc 1 # once this set was said to have boxes then
[ $rc = 71 ] || { fail "no memory to look for boxes: ended with $rc"; show; }

# ---- a loss of power ----
record
wrong=$(check_order)
checks=$((checks + 1))
[ -s recorded/log ] && [ -z "$wrong" ] || fail "the order of writing: ${wrong:-nothing was recorded}"
# The moment when the checkpoint has its new name, and nothing is known of the folder.
renamed=$(grep -n "^rename.*/checkpoint.safetensors$" recorded/log | head -n 1 | cut -d: -f1)
check_loss "${renamed:-0}" folder
summary
finish
