#!/bin/bash
# A training whose length is a number of steps: the last epoch is a shorter one, the rate rises and falls over the steps, a run that
# was stopped continues to the same bytes; and what is refused.
. "$(dirname "$0")/support_common.sh"
narrow
make_shapes data 4 1

train() { "$convoy" -q train data --arch resnet18 --image-size 32 --batch-size 4 --seed 1 --lr-schedule cosine "$@"; }
steps() { train --steps 11 --warmup-steps 2 --lr 0.02 --warmup-lr 0.01 --log-every-step "$PWD/$1/steps.csv" --workspace "$1" "${@:2}"; }

expect 0 steps calm
checks=$((checks + 3))
[ "$(tail -n +2 calm/steps.csv | wc -l)" = 11 ] || fail "not 11 steps: $(cat calm/steps.csv)"
[ "$(cut -d , -f 4 calm/steps.csv | sed -n '2,4p' | paste -sd ' ')" = "0.01 0.015 0.02" ] || fail "the rate rises otherwise: $(cat calm/steps.csv)"
epochs=$(($(wc -l <calm/metrics.csv) - 1))
each=$(grep -c '^0,' calm/steps.csv)
[ $epochs = $(((11 + each - 1) / each)) ] && [ $((11 % each)) != 0 ] || fail "$epochs epochs of $each steps hold 11 steps"

expect 0 steps stopped --run-epochs 1
expect 0 "$convoy" -q train --resume stopped
expect_same calm/checkpoint.safetensors stopped/checkpoint.safetensors
expect_same calm/steps.csv stopped/steps.csv
expect 0 "$convoy" train --resume calm --run-epochs 1 --checkpoint-every 5
checks=$((checks + 1))
! grep -q 'replaces the saved' err || fail "a warning of what no run had: $(cat err)"

# --run-steps: the steps of one run, beyond the end of an epoch, with the rates of the whole schedule.
epochs() { train --epochs 4 --lr 0.002 --rewinds 0 --lr-unit step --gather-checkpoints -1 --log-every-step "$PWD/$1/steps.csv" --workspace "$1" "${@:2}"; }
count() { tail -n +2 "$1" | wc -l; }
expect 0 epochs whole
expect 0 epochs part --run-steps $((each + 1))
checks=$((checks + 5))
head -n $((each + 2)) whole/steps.csv >first.csv
expect_same first.csv part/steps.csv
[ "$(count part/metrics.csv)" = 2 ] || fail "no record of the epoch that was begun: $(cat part/metrics.csv)"
[ "$(head -n 2 part/metrics.csv)" = "$(head -n 2 whole/metrics.csv)" ] || fail "the first epoch is another: $(cat part/metrics.csv)"
[ ! -e part/checkpoint_0001.safetensors ] || fail "an epoch that was begun has a checkpoint of its own"
# One that was interrupted ends where it was to. One at its end continues there, and all steps are taken once.
cp part/checkpoint.safetensors end.safetensors
expect 0 "$convoy" -q train --resume part/checkpoint_0000.safetensors
expect_same end.safetensors part/checkpoint.safetensors
expect 0 "$convoy" train --resume part --run-steps 2
grep -q "^convoy: the run ends after step 3 of $each of epoch 2/4, where --resume continues" err || fail "no word of where the run ends: $(cat err)"
expect 0 "$convoy" train data --arch resnet18 --image-size 32 --batch-size 4 --epochs 2 --workspace bare --run-steps 2 --no-checkpoints
grep -q "^convoy: the run ends after step 2 of $each of epoch 1/2; no checkpoint is kept" err || fail "no word that nothing is kept: $(cat err)"
[ "$(count part/steps.csv)" = $((each + 3)) ] || fail "not two steps more: $(cat part/steps.csv)"
expect 0 "$convoy" -q train --resume part
records() { grep -o '"step": \[[^]]*\]' "$1/experiment_raport.json" >"$1.records"; }
records whole
records part
expect_same whole.records part.records
for file in steps.csv metrics.csv checkpoint.safetensors model_best.safetensors; do expect_same whole/$file part/$file; done
expect_sentence 2 "run-steps" train --run-steps 0

expect_sentence 2 "options --steps and --epochs exclude each other" train --steps 8 --epochs 2
expect_sentence 2 "there is --warmup-steps" train --steps 8 --warmup 1
expect_sentence 2 "option --steps 1000000000 makes [0-9]+ epochs of $each steps, and at most 1000000 are" train --steps 1000000000
expect_sentence 2 "leaves nothing of 8 steps" train --steps 8 --warmup-steps 8
expect_sentence 2 "needs a length in steps" train --warmup-steps 2
expect_sentence 2 "warmup-lr needs a length in steps" train --warmup-lr 0.01
expect_sentence 2 "warmup-lr needs steps of rising rate" train --steps 8 --warmup-lr 0.01
expect_sentence 2 "cosine or linear, not step" "$convoy" -q train data --steps 8 --lr-schedule step
finish
