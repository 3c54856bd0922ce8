#!/bin/bash
# Quantisation-aware training as a person meets it: tuned from a network of floats, over a delay, stopped and resumed bit
# for bit, evaluated and classified as what it is, carried through other formats; what cannot be meant is refused.
. "$(dirname "$0")/support_common.sh"
narrow
make_shapes data 3 2
expect 0 tiny_train data --epochs 1 --workspace base
weights=base/model_best.safetensors

tune() { # 3 steps an epoch, of which the first 4 are not rounded
    "$convoy" -q train data --pretrained-weights $weights --batch-size 10 --lr 0.002 --warmup 0 --epochs 3 --workers 2 \
        --quantize --quant-delay 4 "$@"
}

# ---- what cannot be meant; nothing is created ----
refuse() {
    expect_sentence "$@" --workspace refused
    [ ! -e refused ] || fail "a run directory was made by: $*"
}
refuse 2 'option --symmetric says how to quantise: it needs --quantize' tiny_train data --symmetric
refuse 2 'option --per-channel says how to quantise: it needs --quantize' tiny_train data --per-channel
refuse 2 'option --quant-delay says how' tiny_train data --quant-delay 3
refuse 2 'option --use-qdq means scales without zero points: it needs --symmetric' tune --use-qdq
refuse 2 'options --quantize and --freeze exclude each other' tune --freeze conv1
refuse 2 'option --quant-delay: "-1"' tune --quant-delay -1

# ---- stopped after the first epoch, within the delay, and after the second ----
mkdir calm disturbed
cp -r base data calm && cp -r base data disturbed
(cd calm && expect 0 tune --symmetric --use_qdq --workspace run --log-every-step run/steps.csv) || fail "the calm run"
(cd disturbed && expect 0 tune --symmetric --use_qdq --workspace run --log-every-step run/steps.csv --run-epochs 1 &&
    expect 0 "$convoy" -q train data --resume run --run-epochs 1 && expect 0 "$convoy" -q train data --resume run) ||
    fail "the disturbed run"
expect_same calm/run/checkpoint.safetensors disturbed/run/checkpoint.safetensors
expect_same calm/run/model_best.safetensors disturbed/run/model_best.safetensors
expect_same calm/run/steps.csv disturbed/run/steps.csv
refuse_change() {
    expect_sentence 2 "$@"
}
refuse_change 'resumed run cannot change' "$convoy" -q train data --resume calm/run --quant-delay 2
refuse_change 'resumed run cannot change' "$convoy" -q train data --resume calm/run --symmetric=false
refuse_change 'resumed run cannot change' "$convoy" -q train data --resume calm/run --quantize=false
expect 0 "$convoy" -q train data --resume calm/run --quantize --symmetric # the same again: nothing left to do

# ---- it is a quantised network for everybody ----
best=calm/run/checkpoint.safetensors
expect 0 "$convoy" info $best
expect_text out 'quantized +symmetric'
expect 0 "$convoy" info $best --plan --precision fp32
expect_text out 'fake_quantize'
expect 0 "$convoy" info $best --plan # in integers where the processor has the instructions
expect_text out 'conv2d_int8|fake_quantize'
# With the floats of the training: its own loss. In integers the sums are exact, and rounded once more between layers.
expect 0 "$convoy" -q evaluate data --weights $best --format json
integers=$(sed -n 's/.*"loss": \([0-9.]*\).*/\1/p' out)
expect 0 "$convoy" -q evaluate data --weights $best --precision fp32 --format json
cp out rounded.json
last=$(tail -n 1 calm/run/metrics.csv | cut -d, -f3) # val.loss of the last epoch
expect_text calm/run/metrics.csv '^epoch,train.loss,val.loss'
now=$(sed -n 's/.*"loss": \([0-9.]*\).*/\1/p' rounded.json)
awk -v a="$last" -v b="$now" 'BEGIN { exit !(b > 0 && (a - b) ^ 2 <= (1e-6 * b) ^ 2) }' ||
    fail "evaluate gives a loss of $now, the training's last validation $last"
awk -v a="$integers" -v b="$now" 'BEGIN { exit !(a > 0 && (a - b) ^ 2 <= (0.02 * b) ^ 2) }' ||
    fail "in integers evaluate gives a loss of $integers, in floats $now"
expect 0 "$convoy" -q convert $best copy.pth
expect 0 "$convoy" -q evaluate data --weights copy.pth --arch resnet18 --precision fp32 --format json
grep -vE 'per_second|latency_ms' out >through.json
grep -vE 'per_second|latency_ms' rounded.json >direct.json
expect_same direct.json through.json
expect 0 "$convoy" -q convert $best out.onnx
grep -q QuantizeLinear out.onnx || fail "the ONNX file has no integers"

# With a scale for each channel, from the metadata and from the tensors alone.
expect 0 tune --per-channel --workspace channels
expect 0 "$convoy" info channels/model_best.safetensors
expect_text out 'quantized +channels'
expect 0 "$convoy" -q convert channels/model_best.safetensors channels.pth
expect 0 "$convoy" info channels.pth
expect_text out 'quantized +channels'

# As TensorFlow's program does it: folded, stopped and resumed, evaluated, carried through formats that cannot say it.
refuse 2 'options --per-channel and --quantize-rule tensorflow exclude each other' tune --per-channel \
    --quantize-rule tensorflow
refuse 2 'options --sync-bn and --quantize-rule tensorflow exclude each other' "$convoy" -q train data --quantize \
    --quantize-rule tensorflow --sync-bn --processes 2 --dry-run
refuse 2 'options --sync-bn and --quantize-rule tensorflow exclude each other' "$convoy" -q train data --quantize \
    --quantize-rule tensorflow --sync-bn --processes 2
refuse 2 'option --freeze-bn-delay needs --quantize-rule tensorflow' tune --freeze-bn-delay 3
folded() {
    tune --quantize-rule tensorflow --symmetric --freeze-bn-delay 7 --quant-delay 2 "$@"
}
mkdir whole parts
cp -r base data whole && cp -r base data parts
(cd whole && expect 0 folded --workspace run) || fail "the whole folded run"
(cd parts && expect 0 folded --workspace run --run-epochs 2 && expect 0 "$convoy" -q train data --resume run) ||
    fail "the folded run in parts"
expect_same whole/run/checkpoint.safetensors parts/run/checkpoint.safetensors
refuse_change 'resumed run cannot change' "$convoy" -q train data --resume whole/run --quantize-rule convoy
refuse_change 'resumed run cannot change' "$convoy" -q train data --resume whole/run --freeze-bn-delay 9
best=whole/run/checkpoint.safetensors
expect 0 "$convoy" info $best
expect_text out 'quantized +folded-symmetric'
expect_sentence 2 'was quantised by --quantize-rule tensorflow, which a .pth.tar file cannot say' "$convoy" convert \
    $best no.pth.tar
[ ! -e no.pth.tar ] || fail "a file was written all the same"
expect 0 "$convoy" -q convert $best folded.pth
expect 0 "$convoy" info folded.pth
expect_text out 'quantized +symmetric'
for precision in auto fp32; do # in integers where the processor has the instructions, and in floats: the same network
    expect 0 "$convoy" -q evaluate data --weights $best --precision $precision --format json
    grep -vE 'per_second|latency_ms' out >direct.json
    expect 0 "$convoy" -q evaluate data --weights folded.pth --precision $precision --format json
    grep -vE 'per_second|latency_ms' out >through.json
    expect_same direct.json through.json
done
expect 0 "$convoy" -q convert $best folded.onnx
grep -q QuantizeLinear folded.onnx || fail "the ONNX file of the folded network has no integers"
expect 0 "$convoy" train data --pretrained-weights $best --batch-size 10 --warmup 0 --epochs 1 --workspace more
expect_text err 'weights +.*quantize-rule tensorflow'
best=calm/run/checkpoint.safetensors

# Weights of a quantised network go on as one, and only --quantize false takes that away.
expect 0 "$convoy" train data --pretrained-weights $best --batch-size 10 --warmup 0 --epochs 1 --workspace on
expect_text err 'weights +.*quantize true.*symmetric true'
expect 0 "$convoy" -q train data --pretrained-weights $best --batch-size 10 --warmup 0 --epochs 1 --workspace off \
    --quantize=false --symmetric=false --quant-delay 0
expect 0 "$convoy" info off/model_best.safetensors
! grep -q quantized out || fail "a plain network is said to be quantised"
finish
