#!/bin/bash
# Every published command line of the reference programs is accepted, and comes to the values that those programs train
# with: neither data nor a device is there.
. "$(dirname "$0")/support_common.sh"
narrow

# The configurations of ssd320.
configuration() { # NAME STEPS RATE WARM_RATE WARM_STEPS
    sed "s/WARM_STEPS/$5/; s/WARM_RATE/$4/; s/STEPS/$2/g; s/RATE/$3/; /^#/d" \
        "$sources/tests/cli/support_ssd320.config" >"configs/$1.config"
}
mkdir configs
configuration ssd320_full_1gpus 100000 .02 .0086664 8000
configuration ssd320_full_4gpus 25000 .08 .0346656 2000
configuration ssd320_full_8gpus 12500 .16 .0693312 1000
configuration ssd320_bench 1250 .02 .0086664 400

declare -A texts
expand() { # TEXT: with the texts of its braces in $expanded
    expanded=$1
    while [[ $expanded =~ \{([a-z0-9-]+)\} ]]; do
        expanded=${expanded//"${BASH_REMATCH[0]}"/${texts[${BASH_REMATCH[1]}]?no text of this name}}
    done
}
while IFS='|' read -r name processes arguments values; do
    [[ $name == \#* ]] && continue
    if [[ $name =~ ^let\ ([a-z0-9-]+)\ =\ (.*) ]]; then
        texts[${BASH_REMATCH[1]}]=${BASH_REMATCH[2]}
        continue
    fi
    expand "$arguments"
    # shellcheck disable=SC2086 # words
    expect 0 "$convoy" train --dry-run --processes $processes $expanded || continue
    declare -A found=()
    while read -r option value _; do found[$option]=$value; done <out
    found[data]=${found[data]//\"/}
    expand "$values"
    for pair in $expanded; do
        checks=$((checks + 1))
        [ "${found[${pair%%=*}]-}" = "${pair#*=}" ] ||
            fail "$name: ${pair%%=*} is ${found[${pair%%=*}]-} instead of ${pair#*=}"
    done
    unset found
done <"$sources/tests/cli/support_reference_lines.txt"
[ "$checks" -gt 3000 ] || fail "only $checks checks: the table was not read"
[ "$(ls -A)" = "$(printf 'configs\nerr\nout')" ] || fail "a dry run wrote something: $(ls -A)"

# What a configuration must not say, by line and name.
wrong() { # PATTERN SED
    sed "$2" configs/ssd320_full_1gpus.config >configs/wrong.config
    expect_sentence 2 "$1" "$convoy" train --dry-run -q --pipeline_config_path configs/wrong.config
}
wrong 'line [0-9]+ of .*model.ssd.matcher.argmax_matcher.matched_threshold 0.6 is not supported: ssd320 has 0.5' \
    's/matched_threshold: 0.5/matched_threshold: 0.6/'
wrong 'model.ssd.feature_extractor.type "ssd_inception_v2" is not supported: ssd320 has ssd_resnet50_v1_fpn' \
    's/ssd_resnet50_v1_fpn/ssd_inception_v2/'
wrong 'model.faster_rcnn is not supported: the configurations of ssd320 have no such field' 's/^model { ssd/model { faster_rcnn/'
wrong 'random_adjust_hue is not supported' 's/random_horizontal_flip/random_adjust_hue/'
wrong 'lacks model.ssd.normalize_loc_loss_by_codesize, which is not' 's/normalize_loc_loss_by_codesize: true//'
wrong 'the images of ssd320 are square' 's/width: 320/width: 640/'
wrong 'files of one folder' 's,/data/coco2017_tfrecords/.val,/elsewhere/val,'
wrong 'train_config.batch_size [0-9]+ is not supported: it is one value, and line [0-9]+ has it already' \
    's/^train_config: {/train_config: { batch_size: 4/'
wrong 'feature_extractor.type ".x1B\[31mred" is not supported' 's/ssd_resnet50_v1_fpn/\x1b[31mred/'
sed 's/^eval_config.*//; s/}$//' configs/ssd320_full_1gpus.config >configs/torn.config
expect_sentence 65 'line [0-9]+ of .*' "$convoy" train --dry-run -q --pipeline_config_path configs/torn.config
sed '/^ data_augmentation_options/d; /max_aspect_ratio: 3.0/d' configs/ssd320_full_1gpus.config >configs/plain.config
expect 0 "$convoy" train --dry-run --pipeline_config_path configs/plain.config --num_train_steps 500
expect_text out '^augmentation +off +recipe$'
expect_text out '^schedule-steps +100000 +recipe$'
expect_sentence 2 'needs --checkpoint_dir' "$convoy" train --dry-run -q --pipeline_config_path configs/plain.config --run_once
expect_sentence 2 'load_pretrained=true' "$convoy" train --dry-run -q --pipeline_config_path configs/plain.config \
    --hparams_overrides x=1

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
# A short line of PyTorch's program says what is chosen for it, and what that program has.
expect_text err 'chosen from the data by the automatic recipe .*--recipe reference gives: data-backend dali-cpu, model-config classic, epochs 90, image-size 224, lr 0.1, lr-schedule step'
expect 0 "$convoy" train --dry-run --recipe resnet50-90e --optimizer-batch-size 600 /nowhere
expect_text err 'not a multiple of the 256 images of one pass: a step has 512'
expect_text out '^a step has 512 images'
# With another image size validation has its margin, 32 pixels: of a line that gives every value, and of launch.py's.
expect 0 "$convoy" train --dry-run /nowhere --arch resnet50 -c fanin --label-smoothing 0.1 -b 256 --lr 2.048 --mom 0.875 \
    --lr-schedule cosine --epochs 90 --warmup 8 --wd 3.0517578125e-05 --image-size 160
expect_text out '^eval-resize +192 +derived$'
expect 0 "$convoy" train --dry-run /nowhere --model resnet50 --precision AMP --mode convergence --platform DGXA100 --image-size 160
expect_text out '^eval-resize +192 +recipe$'
expect 0 "$convoy" train --dry-run /nowhere --arch resnet50 --image-size 288
expect_text err '--recipe reference gives: .*eval-resize 320, lr 0.1'
# Ranks that are only counted are like this one.
make_shapes data 8 2
expect 0 "$convoy" train data --dry-run --processes 2
expect_text out '^batch-size +8 +automatic$'
# What is wrong is wrong in a dry run too.
expect_sentence 2 'exclude each other' "$convoy" train --dry-run --steps 3 --epochs 3 --lr-schedule cosine /nowhere
expect_sentence 66 'does not exist' "$convoy" train --dry-run --resume nothing
expect_sentence 2 'no configuration of model resnet50, platform DGX9' "$convoy" train --dry-run /nowhere --model resnet50 \
    --platform DGX9 --precision AMP --mode convergence
expect_sentence 2 'option --mode is convergence' "$convoy" train --dry-run /nowhere --model resnet50 --platform T4 \
    --precision AMP --mode train
expect_sentence 2 'a line of launch.py has' "$convoy" train --dry-run /nowhere --model resnet50
expect_sentence 2 'dali needs --data_idx_dir' "$convoy" train --dry-run --mode train --data_dir /nowhere --dali
for wrong in 0 99999999999 two 1,1; do
    expect_sentence 2 'option --gpus is "all", how many' "$convoy" train data --dry-run --gpus $wrong
done
expect_sentence 2 'options --gpus and --processes exclude each other' "$convoy" train data --dry-run --gpus 2 --processes 2
# GPUs are not looked for.
for gpus in 3 0,2,3; do
    expect 0 "$convoy" train data --dry-run --gpus $gpus
    expect_text out '^processes 3$'
done
finish
