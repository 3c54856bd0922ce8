#!/bin/bash
# --running-statistics: all ranks validate with rank 0's, or each with its own. Training is the same, and rank 0's are saved.
. "$(dirname "$0")/support_common.sh"
narrow
make_shapes data 3 3
for rule in rank0 own; do
    expect 0 "$convoy" -q train data --arch resnet18 --image-size 32 --batch-size 5 --lr 0.02 --epochs 1 --workers 1 --processes 2 \
        --running-statistics $rule --workspace $rule --log-every-step $rule.csv
    expect 0 "$convoy" -q convert $rule/checkpoint.safetensors $rule.safetensors --weights-only
    # One process has the saved ones, whatever the rule.
    expect 0 "$convoy" -q evaluate data --weights $rule.safetensors --format json
    cp out $rule.json
done
expect_same rank0.csv own.csv
# The header of a file (its length in the first eight bytes) names the options, and the loss; all after it is weights.
for rule in rank0 own; do
    tail -c +$((9 + $(od -An -tu8 -N8 $rule.safetensors))) $rule.safetensors >$rule.tensors
done
expect_same rank0.tensors own.tensors
loss_of() { # as the run found it
    tail -n 1 "$1/metrics.csv" | cut -d, -f3
}
alone=$(grep -oE '"loss": *[0-9.]+' rank0.json | grep -oE '[0-9.]+$')
checks=$((checks + 3))
[ -s own.tensors ] || fail "there are no weights"
awk -v a="$(loss_of rank0)" -v b="$alone" 'BEGIN { d = a - b; exit !(a > 0 && b > 0 && d < 1e-4 && d > -1e-4) }' ||
    fail "with rank 0's statistics the loss is $(loss_of rank0), and one process has $alone"
awk -v a="$(loss_of own)" -v b="$alone" 'BEGIN { d = a - b; exit !(a > 0 && (d > 1e-3 || d < -1e-3)) }' ||
    fail "each rank's own statistics give the loss of rank 0's, $alone: the ranks have the same, or the rule does nothing"
expect_sentence 2 'options --quantize and --running-statistics own exclude each other' "$convoy" -q train data --quantize \
    --running-statistics own --processes 2
# What only several processes can have is named where there is one, if somebody asked for it; the recipe has it too.
alone() { "$convoy" -q train data --arch resnet18 --image-size 32 --batch-size 5 --dry-run "$@"; }
expect_sentence 0 'warning: option --running-statistics has no effect: there is one process$' alone --running-statistics own
expect_sentence 0 'warning: option --sync-bn has no effect: there is one process$' alone --sync-bn --running-statistics rank0
expect_sentence 0 'warning: options --sync-bn, --gradient-compression, --running-statistics have no effect: there is one process$' \
    alone --running-statistics own --gradient-compression bf16 --sync-bn
printf "running-statistics = own\n" >own.recipe
for options in '--gradient-compression none' '--recipe own.recipe' '--sync-bn --processes 2'; do
    # shellcheck disable=SC2086 # several words
    expect 0 alone $options
    checks=$((checks + 1))
    grep -q 'no effect' err && { fail "$options is said to have no effect"; show; }
done
expect_sentence 2 'running-statistics.*(rank0|own)' "$convoy" train data --running-statistics mean
finish
