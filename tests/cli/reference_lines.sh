#!/bin/bash
# Every published command line of the reference programs is accepted, and comes to the values that those programs train
# with: neither data nor a device is there.
. "$(dirname "$0")/support_common.sh"

while IFS='|' read -r name processes arguments values; do
    [[ $name == \#* ]] && continue
    # shellcheck disable=SC2086 # words
    expect 0 "$convoy" train --dry-run --processes $processes $arguments || continue
    declare -A found=()
    while read -r option value _; do found[$option]=$value; done <out
    found[data]=${found[data]//\"/}
    for pair in $values; do
        checks=$((checks + 1))
        [ "${found[${pair%%=*}]-}" = "${pair#*=}" ] ||
            fail "$name: ${pair%%=*} is ${found[${pair%%=*}]-} instead of ${pair#*=}"
    done
    unset found
done <"$sources/tests/cli/support_reference_lines.txt"
[ "$checks" -gt 600 ] || fail "only $checks checks: the table was not read"
[ "$(ls -A)" = "$(printf 'err\nout')" ] || fail "a dry run wrote something: $(ls -A)"

# Where a value comes from.
expect 0 "$convoy" train --dry-run --recipe resnet50-90e --lr 1 --epochs 3 /nowhere
expect_text out '^lr +1 +flag$'
expect_text out '^momentum +0.875 +recipe$'
expect_text out '^num-classes +[?] +unknown$'
expect_text out '^squeeze-width +- +default$'
expect_text out '^workers +[0-9]+ +derived$'
expect 0 "$convoy" train --dry-run --json --arch resnet18 --lr-per-256 0.1 --batch-size 64 --processes 2 /nowhere
expect_text out '"lr": [{]"value": 0.05, "from": "derived"[}]'
expect_text out '"epochs": [{]"value": null, "from": "unknown"[}]'
expect_text out '"images_of_a_step": 128'
expect 0 "$convoy" train --dry-run --recipe resnet50-90e --optimizer-batch-size 600 /nowhere
expect_text err 'not a multiple of the 256 images of one pass: a step has 512'
expect_text out '^a step has 512 images'
# What is wrong is wrong in a dry run too.
expect_sentence 2 'exclude each other' "$convoy" train --dry-run --steps 3 --epochs 3 --lr-schedule cosine /nowhere
expect_sentence 66 'does not exist' "$convoy" train --dry-run --resume nothing
finish
