#!/bin/bash
# Steps of several batches, RMSprop, the moving average, mixup, rates by step and bf16 at once: stopped by SIGTERM somewhere and
# resumed, a run ends with the bytes of one that nobody disturbed. Then what else the rules promise: checkpoints kept, an early
# end, --evaluate, what is refused.
. "$(dirname "$0")/support_common.sh"
narrow
per_class=8
sanitized && per_class=4
make_shapes data $per_class 2
seed=${CONVOY_TEST_SEED:-$$}
RANDOM=$seed
echo "random seed $seed (CONVOY_TEST_SEED sets it)"
precision=(--amp)
without_bf16 && precision=()

train() { "$convoy" -q train data --arch resnet18 --image-size 32 --batch-size 5 --seed 1 "$@"; }
rules() {
    train --epochs 3 --optimizer-batch-size 10 --optimizer rmsprop --rmsprop-eps 0.01 --lr-per-256 0.05 --lr-unit step \
        --lr-schedule cosine --warmup 1 --use-ema 0.9 --best-of ema --weight-decay-rule exact --label-smoothing 0.1 --mixup 0.2 \
        --log-every-step "$PWD/$1/steps.csv" --workspace "$1" "${precision[@]}" "${@:2}"
}

# ---- the same bytes ----
expect 0 rules calm --gather-checkpoints -1
steps=$(($(wc -l <calm/steps.csv) - 1))
checks=$((checks + 1))
[ "$(head -n 2 calm/steps.csv | tail -n 1 | cut -d , -f 1,2,4)" = 0,1,0 ] || fail "the first step has a rate: $(head -n 2 calm/steps.csv)"
[ "$((steps % 3))" = 0 ] || fail "$steps steps are no three epochs"
stop_after=$((1 + RANDOM % (steps - 1)))
(exec "$convoy" -q train data --arch resnet18 --image-size 32 --batch-size 5 --seed 1 --epochs 3 --optimizer-batch-size 10 \
    --optimizer rmsprop --rmsprop-eps 0.01 --lr-per-256 0.05 --lr-unit step --lr-schedule cosine --warmup 1 --use-ema 0.9 \
    --best-of ema --weight-decay-rule exact --label-smoothing 0.1 --mixup 0.2 --log-every-step "$PWD/stopped/steps.csv" --workspace stopped \
    "${precision[@]}") >out 2>err &
process=$!
while [ "$(cat stopped/steps.csv 2>/dev/null | wc -l)" -le $stop_after ] && kill -0 $process 2>/dev/null; do
    sleep 0.01
done
kill -TERM $process 2>/dev/null
wait $process
code=$?
checks=$((checks + 1))
[ $code = 75 ] || [ $code = 0 ] || fail "SIGTERM ended the run with $code: $(cat err)"
expect 0 "$convoy" -q train --resume stopped
expect_same calm/checkpoint.safetensors stopped/checkpoint.safetensors
expect_same calm/model_best.safetensors stopped/model_best.safetensors
expect_same calm/steps.csv stopped/steps.csv
expect_same calm/metrics.csv stopped/metrics.csv

# ---- the average by the rule of the step ----
# A decay that forgets everything: the average is the weights after each step of two batches, and has not moved before.
expect 0 train --epochs 1 --prof 4 --optimizer-batch-size 10 --use-ema 0.5 --ema-rule step --training-only --workspace forgetful
for file in weights average; do
    [ $file = average ] && ema=--ema || ema=--weights-only
    expect 0 "$convoy" convert forgetful/checkpoint.safetensors $file.safetensors $ema
    expect 0 "$convoy" classify data/val --weights $file.safetensors --format csv --logits
    mv out $file.txt
done
checks=$((checks + 1)) # up to the rounding of e + (x - e)
paste -d , weights.txt average.txt | awk -F, 'NR > 1 && ($3 != $9 || ($6 - $12) ^ 2 > 1e-8) { exit 1 }' || fail "the average is not the weights"
expect_text forgetful/experiment_raport.json '"train.l2_loss"'
expect_sentence 2 'option --ema-rule step is for a length in epochs' train --steps 2 --lr-schedule cosine --use-ema 0.9 \
    --ema-rule step --workspace no

# ---- what was kept ----
expect_same calm/checkpoint.safetensors calm/checkpoint_0002.safetensors
checks=$((checks + 1))
[ "$(echo calm/checkpoint_*)" = "calm/checkpoint_0000.safetensors calm/checkpoint_0001.safetensors calm/checkpoint_0002.safetensors" ] ||
    fail "kept: $(echo calm/checkpoint_*)"
# The best by its average is the average of that epoch.
best=$(tail -n +2 calm/metrics.csv | awk -F, 'BEGIN { most = -1 } $7 > most { most = $7; best = $1 } END { print best }')
expect 0 "$convoy" convert "calm/checkpoint_000$best.safetensors" ema.safetensors --ema
expect 0 "$convoy" classify data/val --weights ema.safetensors --format csv
cp out ema.txt
expect 0 "$convoy" classify data/val --weights calm/model_best.safetensors --format csv
expect_same out ema.txt
expect 0 "$convoy" convert calm/checkpoint.safetensors whole.pth.tar
expect 0 "$convoy" convert whole.pth.tar back.safetensors
for prefix in optimizer.square_avg optimizer.momentum_buffer ema; do
    checks=$((checks + 1))
    [ "$(grep -ao "\"$prefix\.[a-z0-9.]*weight\"" back.safetensors | sort | uniq | wc -l)" -gt 20 ] || fail "no $prefix in back.safetensors"
done

# ---- back to an epoch's own file ----
cp -r calm again
: >again/checkpoint_0009.safetensors.tmp.999999 # of a run that was killed
expect 0 "$convoy" -q train --resume again/checkpoint_0000.safetensors --run-epochs 1
checks=$((checks + 1))
[ ! -e again/checkpoint_0002.safetensors ] || fail "a checkpoint of the future that was left is still there"
checks=$((checks + 1))
[ ! -e again/checkpoint_0009.safetensors.tmp.999999 ] || fail "a part of a checkpoint is still there"
expect 0 "$convoy" -q train --resume again
expect_same calm/checkpoint.safetensors again/checkpoint.safetensors
expect_same calm/model_best.safetensors again/model_best.safetensors

# ---- one pass of a finished run ----
find calm -type f -exec sha256sum {} + | sort >before
expect 0 "$convoy" -q train --resume calm --evaluate
expect_text out 'moving average: top-1'
checks=$((checks + 1))
[ ! -s err ] || fail "--evaluate says something: $(cat err)"
checks=$((checks + 1))
grep -q "^top-1 $(tail -n 1 calm/metrics.csv | awk -F, '{ printf "%.2f", $4 }') %" out || fail "not the last epoch's: $(cat out)"
expect 0 "$convoy" -q train data --arch resnet18 --image-size 32 --pretrained-weights calm/model_best.safetensors --evaluate \
    --workspace record
expect_text record/experiment_raport.json '"step": \[[0-9]+\], "data": \{"val.top1"'
expect_text record/experiment_raport.json '"step": \[\], "data": \{"val.top1".*"val.compute_latency_at99"'
# Again, after what a killed one left; and not while another process writes there.
lines=$(wc -l <record/experiment_raport.json)
printf 'DLLL {"torn' >>record/experiment_raport.json
one_pass=("$convoy" -q train data --arch resnet18 --image-size 32 --pretrained-weights calm/model_best.safetensors --evaluate
    --workspace record)
expect 0 "${one_pass[@]}"
checks=$((checks + 1))
[ "$(grep -c '^DLLL {.*}$' record/experiment_raport.json)" = $((2 * lines)) ] || fail "the record is torn"
expect_sentence 73 'another process trains in "record"' flock record/.lock "${one_pass[@]}"
find calm -type f -exec sha256sum {} + | sort >after
expect_same before after

# ---- an early end; the last two epochs' files ----
expect 0 train --epochs 9 --prof 2 --early-stopping 2 --early-stopping-min-delta 100 --gather-checkpoints 2 --workspace early
checks=$((checks + 1))
[ "$(echo early/checkpoint_*)" = "early/checkpoint_0001.safetensors early/checkpoint_0002.safetensors" ] ||
    fail "an early end kept: $(echo early/checkpoint_*)"
expect 0 "$convoy" -q train --resume early
checks=$((checks + 1))
[ "$(tail -n 1 early/metrics.csv | cut -d , -f 1)" = 2 ] || fail "a run that ended early went on"

# ---- two validations of five epochs: after the third and the last; a run that stops in between continues the same ----
expect 0 train --epochs 5 --prof 1 --eval-count 2 --workspace twice
expect 0 train --epochs 5 --prof 1 --eval-count 2 --run-epochs 2 --workspace halves
expect 0 "$convoy" -q train --resume halves
expect_same twice/metrics.csv halves/metrics.csv
checks=$((checks + 1))
validated=$(awk -F, 'NR == 1 { for (i = 1; i <= NF; i++) if ($i == "val.top1") top1 = i; next }
    $top1 != "" { printf "%s ", $1 }' twice/metrics.csv)
[ "$validated" = "2 4 " ] || fail "validated after the epochs: $validated"

# A batch that nobody asked for follows the step, and so does the automatic learning rate.
expect 0 "$convoy" train data --arch resnet18 --image-size 32 --optimizer-batch-size 15 --epochs 1 --prof 5 --training-only --workspace chosen
expect_text err '^length +1 epoch of 1 step with 15 images$'
expect_text err 'lr 0.005859375'
expect_text err 'which --recipe reference gives: .*batch-size 256, eval-resize 64, lr 0.1'

# ---- refused ----
expect_sentence 2 'optimizer-batch-size 3 is below the 5 images' train --optimizer-batch-size 3 --workspace no
expect_sentence 2 'optimizer-batch-size 5000 takes more batches' train --optimizer-batch-size 5000 --workspace no
expect_sentence 2 '--lr and --lr-per-256 exclude' train --lr 0.1 --lr-per-256 0.1 --workspace no
expect_sentence 2 '--bn-weight-decay and --weight-decay-rule exact exclude' train --bn-weight-decay \
    --weight-decay-rule exact --workspace no
expect_sentence 2 '--nesterov is for --optimizer sgd' train --nesterov --optimizer rmsprop --workspace no
expect_sentence 2 '--best-of ema needs an average' train --best-of ema --workspace no
expect_sentence 2 '--early-stopping needs a validation' train --early-stopping 2 --training-only --workspace no
expect_sentence 2 '--eval-count and --training-only exclude' train --eval-count 2 --training-only --workspace no
# A flag over a recipe's rule is not a contradiction when the run continues.
echo 'weight-decay-rule = exact' >exact.recipe
expect 0 train --epochs 2 --run-epochs 1 --prof 1 --recipe exact.recipe --bn-weight-decay --training-only --workspace decays
expect 0 "$convoy" -q train --resume decays
grep -q '"weight-decay-rule": "all"' decays/options.json || fail "the rule that was used is not the saved one"
# A recipe may say how the data are divided, and with which seed.
mkdir plain && cp -r data/train plain/train
printf 'val-split = 0.5\nseed = 7\n' >divided.recipe
divided=(--arch resnet18 --image-size 32 --batch-size 5 --epochs 1 --prof 1 --no-checkpoints)
expect 0 "$convoy" -q train plain "${divided[@]}" --recipe divided.recipe --log-every-step "$PWD/divided.csv" --workspace divided
expect 0 "$convoy" -q train plain "${divided[@]}" --val-split 0.5 --seed 7 --log-every-step "$PWD/flags.csv" --workspace flags
expect_same divided.csv flags.csv
expect_same divided/metrics.csv flags/metrics.csv

expect_sentence 2 '--optimizer sgd: the checkpoint' "$convoy" train --resume calm --optimizer sgd
expect_sentence 2 '--optimizer-batch-size 5: the checkpoint' "$convoy" train --resume calm --optimizer-batch-size 5
finish
