#!/bin/bash
# The reference programs' spellings of options: what they come to, what has no effect, and what is refused.
. "$(dirname "$0")/support_common.sh"
narrow

dry() { # the options of a run without training: a folder that is not there ends it after the options were read
    expect 66 "$convoy" train nowhere "$@"
}

# Both programs' command lines are read to the end.
dry --arch resnet50 -c fanin --label-smoothing 0.1 --lr-schedule cosine --mom 0.875 --wd 3.0517578125e-05 --amp \
    --static-loss-scale 128 --memory-format nhwc --workers 8 --prefetch 4 --gpu-affinity socket --jit no
expect_text err 'memory-format has no effect'
expect_text err 'gpu-affinity has no effect'
dry --arch=resnet50 --batch_size=256 --num_iter=90 --iter_unit=epoch --lr_init=0.256 --lr-unit=step --use_cosine --label_smoothing=0.1 \
    --lr_warmup_epochs=8 --momentum=0.875 --weight_decay=3.0517578125e-05 --weight_init=fan_in --use_xla \
    --data_format=NHWC --use_tf_amp --loss_scale=128 --display_every=100 --results_dir=out
expect_text err 'xla has no effect'

# What an option comes to is in the plan, which the run's options.json repeats.
"$convoy" dataset shapes data --train-per-class 4 --val-per-class 2 --image-size 32 >/dev/null 2>&1 || fail "no data set"
expect 0 "$convoy" train data --arch resnet18 --image-size 32 --eval-resize 32 --batch-size 8 --num-iter 1 --run-iter 1 \
    --lr 0.01 --weight-init fan_out --cosine --results-dir run --cpu --training-only --prof 1
expect_text err 'recipe tensorflow'
expect_text err 'model-config tf-fanout'
expect_text err 'lr-schedule cosine'
expect_text err 'epochs 1'

# A benchmark of inference is one of the checkpoint, if there is one, and the last line says its accuracy; then of random weights.
expect 0 "$convoy" -q evaluate data --weights run/checkpoint.safetensors --batch-size 8 --format json
loss=$(sed -n 's/.*"loss": \([0-9.]*\).*/\1/p' out)
benchmark() {
    expect 0 "$convoy" -q train --data_dir data --arch resnet18 --mode inference_benchmark --iter_unit batch --num_iter 100 --batch_size 8 \
        --cpu --image-size 32 --eval-resize 32 "$@"
}
benchmark --results_dir run
expect_text out "loss $(printf '%.4f' "$loss"): 20 images"
benchmark --model_dir fresh --results_dir run
checks=$((checks + 1))
grep -q "loss $(printf '%.4f' "$loss"):" out && fail "a folder without a checkpoint gives its weights"
expect 0 "$convoy" train --arch resnet18 --mode inference_benchmark --iter_unit batch --num_iter 3 --batch_size 2 --model_dir run \
    --synthetic_data_size 32
expect_text out ': 6 images$'

# Made-up images are as many as a benchmark asks for.
expect 0 "$convoy" train --arch resnet18 --data-backend synthetic --num-classes 10 --image-size 32 -b 2 --epochs 1 --prof 70 --lr 0 \
    --training-only --no-checkpoints --workspace made_up
expect_text err '^length +1 epoch of 70 steps'
expect 0 "$convoy" train --arch resnet18 --mode inference_benchmark --iter_unit batch --num_iter 70 --batch_size 2 \
    --synthetic_data_size 32
expect_text out ': 140 images$'
expect 0 "$convoy" -q train --arch resnet18 --data-backend synthetic --image-size 32 -b 2 --evaluate
expect_text out ': 128 images$'

# One sentence for what would be something else.
expect_sentence 2 'option --pretrained .*convoy pull NAME .*--pretrained-weights NAME' "$convoy" -q train data --pretrained
expect_sentence 2 'iter-unit is epoch or batch here' "$convoy" train nowhere --iter-unit step
expect_sentence 2 'mode is train_and_evaluate, train, ' "$convoy" train nowhere --mode export
expect_sentence 2 'convoy classify IMAGE' "$convoy" train nowhere --mode predict
expect_sentence 2 'is named twice' "$convoy" train nowhere --data_dir elsewhere
expect_sentence 2 'conv-init is fan_in or fan_out' "$convoy" train nowhere --conv-init fan
expect_sentence 2 'convoy classify cat.jpg --weights FILE$' "$convoy" train nowhere --to_predict cat.jpg
# The line that is meant, whose words a shell reads as they were given.
expect_sentence 2 "convoy classify 'my cat.jpg' --weights results --arch resnet50 --device cuda:1 --precision fp32\$" "$convoy" train \
    --arch=resnet50 --mode=predict --model_dir=results --to_predict='my cat.jpg' --gpu_id=1 --precision=fp32 --batch_size=1
expect_sentence 2 'convoy classify cat.jpg --weights model.ckpt-5 --device cpu$' "$convoy" train --mode predict \
    --finetune_checkpoint model.ckpt-5 --to_predict cat.jpg --cpu --precision=fp32 --use_tf_amp
expect_sentence 2 'convoy convert' "$convoy" train nowhere --export_dir out
for name in ../checkpoint.pth.tar plot.svg events.out.tfevents.1 log; do
    expect_sentence 2 'is no name for a checkpoint' "$convoy" train data --raport-file log --checkpoint-filename "$name"
done
expect_sentence 2 'true or false' "$convoy" train nowhere --cpu=maybe
expect_sentence 2 'json is for --dry-run' "$convoy" train nowhere --json
# Neither found by a prefix nor in the help.
expect_sentence 2 'unknown option "--memory-form"' "$convoy" train nowhere --memory-form nhwc
"$convoy" train --help >help.txt || fail "no help"
grep -q memory-format help.txt && fail "a hidden option is in the help"
finish
