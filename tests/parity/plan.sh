#!/bin/bash
# The plans of resnet50 and, because basic blocks end differently, resnet18: see plan.py.
set -u
folder=$(cd "$(dirname "$0")" && pwd)
convoy=${CONVOY:-$folder/../../build/convoy}
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
failed=0

for arch in resnet50 resnet18; do
    for case in "infer 1" "infer 32" "train 32"; do
        read -r mode batch <<<"$case"
        echo "$arch, $mode, batch $batch"
        "$convoy" info "$arch" --plan --runs 0 --mode "$mode" --batch-size "$batch" --format json >"$work/plan.json" || failed=1
        python3 "$folder/plan.py" "$work/plan.json" || failed=1
    done
done
exit $failed
