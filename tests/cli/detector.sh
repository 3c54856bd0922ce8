#!/bin/bash
# A detector from made-up shapes: trained, stopped and resumed to the same bytes, evaluated, its records and its refusals.
. "$(dirname "$0")/support_common.sh"
narrow
images=6 # three steps an epoch, of which the fourth step leaves two
last=7   # step of the longer run
# A training of some steps takes 4 to 9 s of the processor under sanitizers: there one, what continues from it, and what is
# refused.
sanitized && images=4 && last=5
expect 0 "$convoy" -q dataset shapes data --boxes --train-images $images --val-images 3 --image-size 96

train() { "$convoy" -q train "${set:-data}" --arch ssd320 --image-size 64 --batch-size 2 --seed 1 "$@"; }
steps() {
    train --steps 4 --warmup-steps 1 --lr 0.002 --warmup-lr 0.001 --log-every-step "$PWD/$1/steps.csv" --workspace "$1" "${@:2}"
}

# ---- the same bytes after a stop ----
expect 0 steps calm
if ! sanitized; then
    # Killed within the first epoch, after its second step; stopped at its end; and gone on.
    # In a subshell that the program replaces: the kill must not hit a shell that waits for it.
    (program=$convoy; replace() { exec "$program" "$@"; }; convoy=replace; steps stopped --checkpoint-every 2) >out 2>err &
    process=$!
    for _ in $(seq 1200); do
        [ -e stopped/checkpoint.safetensors ] && break
        sleep 0.05
    done
    kill -9 $process 2>/dev/null
    wait $process 2>/dev/null
    expect 0 "$convoy" -q train --resume stopped --run-epochs 1
    expect 0 "$convoy" -q train --resume stopped
    expect_same calm/checkpoint.safetensors stopped/checkpoint.safetensors
    expect_same calm/metrics.csv stopped/metrics.csv
    expect_same calm/steps.csv stopped/steps.csv
fi

# ---- from records: the same boxes and pixels, and so the same steps ----
expect 0 "$convoy" -q dataset tfrecord data records
set=records expect 0 steps recorded --run-epochs 1
head -n "$(wc -l <recorded/steps.csv)" calm/steps.csv >first.csv
expect_same first.csv recorded/steps.csv
expect_text recorded/metrics.csv '^0,[0-9.]+,'
expect 0 "$convoy" -q evaluate records --weights recorded/checkpoint.safetensors --format json
expect_text out '"stats": \[[-0-9.]'

# ---- in 16 bits: validation reads what the network gives in them, losses near those in 32 ----
if ! sanitized && ! without_bf16; then
    expect 0 wide steps whole
    expect 0 wide steps halved --precision bf16
    column=$(head -n 1 whole/metrics.csv | tr , '\n' | grep -n '^val.total_loss$' | cut -d : -f 1)
    for run in whole halved; do
        tail -n 1 $run/metrics.csv | cut -d , -f "$column"
    done >losses
    awk '{ loss[NR] = $1 } END { exit !(loss[1] > 0 && loss[2] > 0.9 * loss[1] && loss[2] < 1.1 * loss[1]) }' losses ||
        fail "validation losses in fp32 and bf16: $(tr '\n' ' ' <losses)"
fi

# ---- in 8 bits ----
if ! sanitized; then
    expect 0 "$convoy" -q quantize calm/checkpoint.safetensors int8.safetensors --data data --max-drop 100 --format json
    expect_text out '"lost": [-0-9]'
    expect_text out '"name": "head.class_predictor", "kind": "layer", "type": "int8"'
    ap=$(sed -n 's/.*"int8": {"ap": \([-0-9.e]*\),.*/\1/p' out)
    expect 0 "$convoy" -q evaluate data --weights int8.safetensors --format json
    awk -v ap="${ap:-none}" -F'[][,]' '/"stats"/ { exit !((100 * $2 - ap) ^ 2 < 1e-8) }' out ||
        fail "evaluate does not give the AP that quantize reports: $ap"
    expect 0 "$convoy" -q detect data/val/000001.jpg --weights int8.safetensors
fi

# ---- without augmentation ----
sanitized || expect 0 train --steps 2 --lr 0.001 --augmentation off --training-only --workspace plain

# ---- a backbone from a classifier ----
make_shapes folders 2 1
if ! sanitized; then
    # Of the same widths in both.
    expect 0 wide "$convoy" -q train folders --arch resnet50 --image-size 32 --batch-size 4 --epochs 1 --prof 1 --workspace classifier
    expect 0 wide train --steps 1 --lr 0 --warmup-lr 0 --weight-decay 0 --pretrained-weights classifier/checkpoint.safetensors --workspace grown
    expect 0 wide "$convoy" train --resume grown --evaluate --workspace seen
    # The loss of a validation has the weights' penalty in it, whether they are frozen or not.
    expect 0 wide train --steps 1 --lr 0 --warmup-lr 0 --pretrained-weights classifier/checkpoint.safetensors --workspace free
    expect 0 wide train --steps 1 --lr 0 --warmup-lr 0 --pretrained-weights classifier/checkpoint.safetensors --freeze backbone --workspace frozen
    checks=$((checks + 1))
    losses() { awk -F, 'NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i } END { print $at["val.total_loss"] - $at["val.localization_loss"] - $at["val.classification_loss"] }' "$1/metrics.csv"; }
    awk -v a="$(losses free)" -v b="$(losses frozen)" 'BEGIN { exit !(a > 0.01 && (a - b) ^ 2 < (1e-4 * a) ^ 2) }' ||
        fail "the penalty of frozen weights is $(losses frozen), and of others $(losses free)"
    expect 0 wide "$convoy" train --resume grown --evaluate --workspace seen --dry-run
    expect_text out '^backbone-strides +torchvision +checkpoint$'
    expect 0 wide "$convoy" convert grown/checkpoint.safetensors grown.pth
    checks=$((checks + 1))
    /usr/bin/python3 - <<'PY' || fail "the backbone is not that of the classifier"
import json, struct, sys
import array

def read(path):
    data = open(path, "rb").read()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8 : 8 + size])
    return {k: (v, data[8 + size + v["data_offsets"][0] : 8 + size + v["data_offsets"][1]]) for k, v in header.items() if k != "__metadata__"}

there, here = read("classifier/checkpoint.safetensors"), read("grown/checkpoint.safetensors")
weights = [name for name in there if name.startswith(("layer", "bn1", "conv1")) and name.endswith(("weight", "bias"))]
assert len(weights) == 159, len(weights)
for name in weights:
    a, b = there[name][1], here["backbone." + name][1]
    if name != "conv1.weight":
        assert a == b, name
    else:
        a, b = array.array("f", a), array.array("f", b)
        std = (58.395, 57.12, 57.375)
        assert all(abs(y * std[i // 49 % 3] - x) <= 2e-7 * abs(x) for i, (x, y) in enumerate(zip(a, b)))
PY
fi

# ---- records ----
expect_text calm/metrics.csv '^epoch,train.loss,train.localization_loss,train.classification_loss,train.regularization_loss,val.ap,'
checks=$((checks + 1))
tail -n 1 calm/metrics.csv | awk -F, '{ sum = $3 + $4 + $5; exit !($2 > 0 && $3 > 0 && $4 > 0 && $5 > 0 && (sum - $2) ^ 2 < 1e-10 * $2 ^ 2) }' ||
    fail "the loss is not the sum of its parts: $(tail -n 1 calm/metrics.csv)"

expect_text calm/metrics.csv ',val.localization_loss,val.classification_loss,val.total_loss,train.lr$'
checks=$((checks + 1))
grep -q '"metric": "val.total_loss"' calm/experiment_raport.json && grep -q '"val.classification_loss": [0-9]' calm/experiment_raport.json ||
    fail "the report has no losses of the validation"
# The penalty on the weights is that of the last step, but for that step.
tail -n 1 calm/metrics.csv | awk -F, '{ penalty = $(NF - 1) - $(NF - 2) - $(NF - 3)
    exit !($(NF - 2) > 0 && $(NF - 3) > 0 && (penalty - $5) ^ 2 < 1e-4 * $5 ^ 2) }' ||
    fail "the loss of the validation is not the sum of its parts: $(tail -n 1 calm/metrics.csv)"

checks=$((checks + 1))
grep -q 'model.parameters' calm/experiment_raport.json && ! grep -qE 'model.(conv_init|last_bn_0_init)' calm/experiment_raport.json ||
    fail "the report tells a detector's initialisation"
checks=$((checks + 1))
grep -q '"metric": "train.localization_loss"' calm/experiment_raport.json && grep -q '"metric": "val.ap50"' calm/experiment_raport.json &&
    ! grep -q '"metric": "val.top' calm/experiment_raport.json || fail "the report describes what a detector does not measure"

# ---- evaluation: the numbers of the training's last validation ----
expect 0 "$convoy" train data --evaluate --resume calm --workspace again
expect_text out '^ Average Precision  \(AP\) @\[ IoU=0.50:0.95 \| area=   all \| maxDets=100 \] = [0-9.]+$'
expect_text err '^convoy: a batch of [0-9]+ takes [0-9.]+ ms; 50 % at most .*; [0-9.]+ images/s$'
checks=$((checks + 1))
[ "$(grep -c '^ Average ' out)" = 12 ] || fail "COCO's program prints twelve numbers"
expect_text out "^total_loss $(tail -n 1 calm/metrics.csv | awk -F, '{ printf "%.4f", $(NF - 1) }')$"
# The records have the names of that program too: of the training, and of its benchmark of inference.
expect 0 "$convoy" -q train data --evaluate --resume calm --workspace named
checks=$((checks + 1))
/usr/bin/python3 - calm named <<'PY' || fail "the names of the reference program are missing"
import json, sys

training, evaluation = ([json.loads(line[5:]) for line in open(f"{folder}/experiment_raport.json")] for folder in sys.argv[1:])
metadata = {record["metric"]: record["metadata"] for record in training if record["type"] == "METADATA"}
assert metadata["train_throughput"]["unit"] == metadata["infer_throughput"]["unit"] == "images/s"
last, seen = training[-1]["data"], evaluation[-1]["data"]
assert last["train_throughput"] > 0 and "infer_throughput" not in last
assert seen["infer_throughput"] > 0 and "train_throughput" not in seen
assert abs(100 * seen["Precision/mAP"] - seen["val.ap"]) < 1e-9 and -1 <= seen["Recall/AR@100 (large)"] <= 1
assert 0 < seen["eval_90%_latency"] <= seen["eval_95%_latency"] <= seen["eval_99%_latency"]
assert abs(seen["eval_avg_latency"] - 1000 * seen["val.compute_latency"]) < 1e-9 * seen["eval_avg_latency"]
assert seen["eval_99%_latency"] <= 1000 * seen["val.compute_latency_at100"] * (1 + 1e-9)
PY
# As that program's lines say it, with its configuration; and on the images of the training.
sed 's/WARM_STEPS/1/; s/WARM_RATE/.001/; s/STEPS/4/g; s/RATE/.002/' "$sources/tests/cli/support_ssd320.config" >ssd320.config
cp out resumed.txt
expect 0 "$convoy" -q train data --pipeline_config_path ssd320.config --checkpoint_dir calm --model_dir again --run_once
expect_same resumed.txt out
expect 0 "$convoy" -q train data --pipeline_config_path ssd320.config --checkpoint_dir calm --model_dir again
expect_text out '^step [0-9]+$'
expect 0 "$convoy" -q train data --pipeline_config_path ssd320.config --checkpoint_dir calm --run_once --eval_training_data
expect_text out "^$images images$"

# The benchmark of inference, of random weights.
expect 0 "$convoy" train data --pipeline_config_path ssd320.config --batch_size 1 --warmup_iters 1 --benchmark_iters 2 \
    --percentiles 90,95 --image-size 64
expect_text out '^2 images$'
expect_text err '^flags .* pretrained-weights none'
expect_text err '^convoy: a batch of 1 takes [0-9.]+ ms; '

# ---- a set without parts: some of its images for validation, the same ones after the training ----
mkdir -p whole/annotations
cp -r data/train whole/images
cp data/annotations/instances_train.json whole/annotations/instances_default.json
expect_sentence 66 'no COCO file for validation.*--val-split' "$convoy" -q train whole --workspace none
expect_sentence 2 'val-split.*nothing is to be set aside' train --val-split 0.5 --workspace none
if ! sanitized; then
    kept=$((images / 3))
    expect 0 "$convoy" train whole --image-size 64 --batch-size 2 --seed 1 --val-split 0.34 --steps 1 --lr 0.001 \
        --workspace divided
    expect_text err "$((images - kept)) training and $kept validation images"
    expect 0 "$convoy" evaluate whole --weights divided/checkpoint.safetensors
    cp out evaluation.txt
    expect_text out "^images $kept "
    expect_text err "the $kept images of \"whole\" that --val-split had set aside"
    expect 0 "$convoy" evaluate whole/annotations/instances_default.json --weights divided/checkpoint.safetensors
    expect_same evaluation.txt out
    expect 0 "$convoy" evaluate data/annotations/instances_val.json --weights divided/checkpoint.safetensors
    expect_text out '^images 3 '
    expect 0 "$convoy" train --resume divided --evaluate --workspace divided_again
    expect_text err "$((images - kept)) training and $kept validation images"
fi

# ---- nothing to find: no epoch is the best, and the files can be read all the same ----
if ! sanitized; then
    expect 0 "$convoy" -q train --arch ssd320 --image-size 64 --batch-size 2 --data-backend synthetic --epochs 1 --prof 1 --lr 0 \
        --num-classes 2 --workspace made_up
    expect 0 "$convoy" info made_up/checkpoint.safetensors
    checks=$((checks + 1))
    [ ! -e made_up/model_best.safetensors ] || fail "random boxes made an epoch the best"
fi

# ---- a longer run after a shorter last epoch ----
expect 0 "$convoy" -q train --resume calm --steps $last
checks=$((checks + 1))
[ "$(tail -n +2 calm/steps.csv | cut -d , -f 2 | paste -sd ' ')" = "$(seq -s ' ' $last)" ] || fail "not $last steps: $(cat calm/steps.csv)"

# ---- what is refused ----
expect_sentence 2 "backbone-strides" "$convoy" -q train --resume calm --backbone-strides torchvision
expect_sentence 2 "option --mixup is for classifiers, and ssd320 is a detector" train --mixup 0.2
expect_sentence 2 "option --area-rule is for detectors, and resnet18 is a classifier" "$convoy" -q train folders --arch resnet18 \
    --area-rule box
expect_sentence 2 "option --model-config is for classifiers" train --model-config classic
expect_sentence 2 "option --last-bn-0-init is for classifiers" train --last-bn-0-init
for jitter in brightness contrast saturation hue; do
    expect_sentence 2 "options --augmentation off and --$jitter exclude each other" train --augmentation off --$jitter 0.3
done
expect_sentence 2 "options --augmentation off and --min-crop-area exclude each other" "$convoy" -q train folders \
    --arch resnet18 --image-size 32 --batch-size 4 --augmentation off --min-crop-area 0.5
expect_sentence 65 "has no boxes" "$convoy" -q train folders --arch ssd320
expect_sentence 66 'cannot open "nowhere"' "$convoy" -q train nowhere --arch ssd320
finish
