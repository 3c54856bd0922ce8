#!/bin/bash
# A network trained on ten classes is tuned to three: --pretrained-weights, --reset-head, --freeze, --head-lr; what
# cannot be meant is refused before anything is created.
. "$(dirname "$0")/support_common.sh"
narrow
make_shapes data 3 1
"$convoy" -q dataset shapes few --train-per-class 6 --val-per-class 2 --image-size 64 || fail "no data set"
for class in $(ls few/train | tail -n +4); do rm -r few/train/"$class" few/val/"$class"; done
expect 0 tiny_train data --epochs 1 --workspace base
expect 0 tiny_train data --arch resnet34 --epochs 1 --prof 1 --workspace deep
weights=base/model_best.safetensors

tune() { # 18 images, 2 steps an epoch
    "$convoy" -q train few --pretrained-weights $weights --batch-size 9 --warmup 0 --workers 2 "$@"
}

# ---- what cannot be meant; nothing is created ----
refuse() {
    expect_sentence "$@" --workspace refused
    [ ! -e refused ] || fail "a run directory was made by: $*"
}
refuse 65 'model_best.safetensors" has 10 classes, not 3; --reset-head' tune
refuse 66 'missing.safetensors' tune --pretrained-weights missing.safetensors
echo "no weights at all" >text.safetensors
cp $weights cut.safetensors && truncate_to cut.safetensors 60
refuse 65 'text.safetensors' tune --pretrained-weights text.safetensors --reset-head
refuse 65 'cut.safetensors' tune --pretrained-weights cut.safetensors --reset-head
refuse 65 'resnet18' tune --arch resnet34 --reset-head
refuse 2 'option --pretrained-weights .*--resume' tune --resume base
refuse 2 'option --reset-head .*--resume' "$convoy" -q train few --resume base --reset-head
refuse 2 'under "layer"; it has conv1, bn1, layer1, layer2, layer3, layer4, fc' tune --reset-head --freeze conv1,layer
refuse 2 'under ""; it has conv1, bn1' tune --reset-head --freeze conv1,
refuse 2 'no parameter of resnet18 is under "bn1.running_mean"' tune --reset-head --freeze bn1.running_mean
refuse 2 'leaves no parameter to train' tune --reset-head --freeze conv1,bn1,layer1,layer2,layer3,layer4,fc
refuse 2 'random classifier of --reset-head' tune --reset-head --freeze fc.bias
refuse 2 'option --freeze needs --pretrained-weights' "$convoy" -q train few --freeze conv1
refuse 2 'option --reset-head needs --pretrained-weights' "$convoy" -q train few --reset-head
refuse 2 'option --head-lr: "0" is not above 0' tune --reset-head --head-lr 0
refuse 2 'option --head-lr needs an --lr above 0' tune --reset-head --head-lr 0.1 --lr 0
refuse 2 'option --head-lr: --freeze fc keeps the classifier' "$convoy" -q train data --pretrained-weights $weights \
    --freeze fc --head-lr 0.1
printf 'pretrained-weights = %s\n' $weights >wrong.recipe
refuse 2 'option --pretrained-weights cannot be set by a recipe' "$convoy" -q train few --recipe wrong.recipe
[ ! -e runs ] || fail "a run directory was made in runs"

# ---- network and image size are the file's ----
expect 0 "$convoy" train few --pretrained-weights deep/model_best.safetensors --reset-head --freeze conv1,bn1,layer1,layer2,layer3 \
    --head-lr 0.05 --lr 0.01 --epochs 1 --workspace tuned
expect_text err '^automatic +recipe finetune: trained weights, and 18 images'
grep -q '^advice' err && fail "advice that has been followed already"
expect_text err 'network +resnet34, 78,?051 parameters'
expect_text err 'input +32 x 32 pixels' # the images have 64
expect_text err 'start +deep/model_best.safetensors; a new classifier for 3 classes'
expect_text err 'frozen +conv1,bn1,layer1,layer2,layer3: [0-9]+ of 78051 parameters stay'
expect_text err 'rates +learning rate 0.05 for the classifier, 0.01 for the rest'
expect_text err 'weights +arch resnet34, padding torch'
expect 0 "$convoy" info tuned/model_best.safetensors
expect_text out 'resnet34'
expect 0 "$convoy" -q evaluate few --weights tuned/model_best.safetensors --format json
expect_text out '"images": 6'
expect 0 "$convoy" convert tuned/checkpoint.safetensors copy.safetensors # momentum of some parameters only
expect 0 "$convoy" -q evaluate few --weights copy.safetensors --format json

# ---- the classifier is kept: the same classes, and other names for them ----
expect 0 tiny_train data --pretrained-weights $weights --epochs 1 --workspace again
[ ! -s err ] || fail "the same classes are worth no warning"
cp -r data renamed
for split in train val; do mv renamed/$split/"$(ls data/train | head -n 1)" renamed/$split/aardvark; done
expect 0 "$convoy" train renamed --pretrained-weights $weights --batch-size 10 --epochs 1 --workspace kept
expect_text err 'warning: .*class 0 is .* there and "aardvark" here; --reset-head'
expect_text err 'start +base/model_best.safetensors, its classifier too, though class 0 is'
refuse 65 'aardvark.*--freeze fc keeps the classifier' "$convoy" -q train renamed --pretrained-weights $weights --freeze fc

# ---- stopped and resumed: the same bytes; frozen layers stay frozen ----
options=(--reset-head --freeze conv1,bn1,layer1,layer2,layer3.0 --head-lr 0.05 --lr 0.01 --epochs 2)
expect 0 tune "${options[@]}" --workspace calm
expect 0 tune "${options[@]}" --workspace halves --run-epochs 1
cp halves/checkpoint.safetensors half.safetensors
refuse 2 'option --freeze layer1: .* made with conv1,bn1,' "$convoy" -q train few --resume half.safetensors --freeze layer1
refuse 2 'option --freeze layer1: .* made with none' "$convoy" -q train data --resume base --freeze layer1
rm base/model_best.safetensors # not needed any more
expect 0 "$convoy" -q train --resume halves --workers 2
expect_same calm/checkpoint.safetensors halves/checkpoint.safetensors
expect_same calm/model_best.safetensors halves/model_best.safetensors

# Killed before the first checkpoint: --resume starts again, from the same file.
cp copy.safetensors start.safetensors
weights=start.safetensors
expect 0 tune --freeze conv1,bn1,layer1 --lr 0.01 --epochs 1 --workspace early
cp early/checkpoint.safetensors early.safetensors
rm early/*.safetensors
expect 0 "$convoy" -q train --resume early
expect_text err 'holds no checkpoint yet'
expect_same early.safetensors early/checkpoint.safetensors

# The same where only --arch says the network: a file without a classifier, and without a word about itself.
LC_ALL=C sed 's/"convoy.arch"/"another.key"/; s/"fc.weight"/"ema.wghts"/; s/"fc.bias"/"ema.bia"/' copy.safetensors \
    >headless.safetensors
weights=headless.safetensors
refuse 65 'headless.*with --arch NAME' tune --reset-head
expect 0 tune --arch resnet34 --reset-head --epochs 1 --workspace bare
cp bare/checkpoint.safetensors bare.safetensors
rm bare/*.safetensors
expect 0 "$convoy" -q train --resume bare
expect_same bare.safetensors bare/checkpoint.safetensors
finish
