#!/bin/bash
# Device "cuda": where there is none it is said why; with the emulated GPU of the tests, training, resuming (also on the
# other device), mixed precision with its loss scale, evaluation and information are those of a GPU.
. "$(dirname "$0")/support_common.sh"
narrow
emulated=${CONVOY_BUILD:?}/tests/emulated_cuda/libconvoy_cuda_emulated.so
if sanitized; then # a hundred times slower: a few steps
    per_class=1 epochs=1
else
    per_class=2 epochs=2
fi
make_shapes data $per_class 1

# ---- no GPU ----
export CONVOY_CUDA_MODULE=$work/missing.so
expect_sentence 69 'device "cuda" is not available: the CUDA module cannot be loaded: .*missing\.so' \
    "$convoy" train data --device cuda
expect_sentence 69 'device "cuda:3" is not available' "$convoy" bench infer --device cuda:3
echo "no library" >not_one.so
CONVOY_CUDA_MODULE=$work/not_one.so expect_sentence 69 'cannot be loaded' "$convoy" train data --device cuda
expect 0 "$convoy" info
grep -qE '^cuda +not available|^cuda .*cannot be loaded' out || fail "info does not say why there is no GPU"
expect 0 "$convoy" bench infer --arch resnet18 --image-size 32 --batch-size 1 --iterations 1 # auto is the CPU then

# A library that is none of ours.
other=$(ldconfig -p 2>/dev/null | sed -n 's/.*libz\.so\.1 .*=> //p' | head -n 1)
[ -z "$other" ] || CONVOY_CUDA_MODULE=$other expect_sentence 69 "is none of Convoy's" "$convoy" train data --device cuda

# ---- the emulated one ----
export CONVOY_CUDA_MODULE=$emulated
[ -e "$emulated" ] || fail "there is no emulated GPU at $emulated"
expect 0 "$convoy" info
grep -qE '^cuda +emulated GPU' out || fail "info does not name the GPU"
expect_sentence 69 'there is no GPU 5' "$convoy" train data --device cuda:5
expect_sentence 2 'a CUDA device has a number' "$convoy" train data --device cuda:x
expect_sentence 2 'needs --device cuda' "$convoy" train data --device cpu --precision fp16
expect_sentence 2 'needs --device cuda' "$convoy" train data --device cpu --precision tf32
expect_sentence 2 'needs --device ref' "$convoy" train data --device cuda --precision fp64
expect_sentence 2 'exclude each other' "$convoy" train data --device cuda --amp --dynamic-loss-scale --loss-scale-rule static

options="--arch resnet18 --image-size 32 --batch-size 10 --epochs $epochs --lr 0.05 --warmup 0 --label-smoothing 0.1
    --last-bn-0-init --log-every-step run/steps.csv"
train() { # FOLDER OPTION...: in that folder
    local folder=$1
    shift
    mkdir -p "$folder"
    # shellcheck disable=SC2086
    (cd "$folder" && exec "$convoy" -q train ../data $options --workspace run "$@")
}

# fp16: the same when interrupted and resumed.
expect 0 train calm --device cuda --amp
if sanitized; then
    expect_text calm/run/steps.csv '^0,1,'
    finish
fi
expect 0 train split --device cuda --amp --run-epochs 1
expect 0 train split --device cuda --amp --resume run
expect_same calm/run/checkpoint.safetensors split/run/checkpoint.safetensors
expect_same calm/run/steps.csv split/run/steps.csv
grep -aq 'precision[^,]*fp16' calm/run/checkpoint.safetensors || fail "the checkpoint does not say fp16"
grep -aq 'loss_scale[^_r]' calm/run/checkpoint.safetensors || fail "the checkpoint has no loss scale"

# A scale that is too large costs steps, not the run; the checkpoint counts them.
expect 0 train high --device cuda --amp --static-loss-scale 1e30
grep -aoE 'skipped_steps[\\": ]*[0-9]+' high/run/checkpoint.safetensors | grep -qE '[1-9][0-9]*$' ||
    fail "no step was left out with a loss scale of 1e30"

# From one device to the other, in fp32: the first epoch there, the second here.
expect 0 train cpu --device cpu --precision fp32
expect 0 train gpu --device cuda --precision fp32
for first in cpu cuda; do
    second=$([ $first = cpu ] && echo cuda || echo cpu)
    expect 0 train from_$first --device $first --precision fp32 --run-epochs 1
    expect 0 train from_$first --device $second --resume run
    expect 0 "$convoy" evaluate data --weights from_$first/run/checkpoint.safetensors --device cpu
done
# Another order of sums in each, over a few steps of residual branches that begin at zero.
for run in gpu from_cpu from_cuda; do
    paste -d, cpu/run/steps.csv $run/run/steps.csv | awk -F, -v run=$run '
        NR > 1 { d = $3 - $7; if (d < 0) d = -d; if (d > worst) worst = d }
        END { if (NR < 3 || !(worst <= 2e-3)) { print run ": losses differ by " worst; exit 1 } }' ||
        fail "the losses of $run are not those of the CPU"
done

expect 0 "$convoy" info resnet18 --plan --mode train --batch-size 4 --device cuda --precision fp16 --runs 0
grep -q 'cuda.batch_norm' out || fail "the plan does not name the GPU's kernels"

# What may differ from run to run is kept with the run, whether an option says it or the environment.
expect 0 train loose --device cuda --precision fp32 --run-epochs 1 --deterministic sums
grep -aq 'CONVOY_CUDA_DETERMINISTIC=sums' loose/run/checkpoint.safetensors || fail "the checkpoint does not say what may differ"
expect 0 train loose --device cuda --resume run
expect 2 train loose --device cuda --resume run --deterministic yes --epochs 3
grep -q 'DETERMINISTIC=sums", this run has .*DETERMINISTIC=yes' err || fail "nothing says that the order of sums was another"
expect 0 train looked_at --device check:cuda --precision fp32 --run-epochs 1 --deterministic sums
grep -aq 'CONVOY_CUDA_DETERMINISTIC=sums' looked_at/run/checkpoint.safetensors || fail "the check device keeps the word for itself"
expect_sentence 2 'option --deterministic is yes, sums or no, not "perhaps"' "$convoy" bench train --arch resnet18 --image-size 32 --batch-size 2 --device cuda --deterministic perhaps
expect 0 "$convoy" bench train --arch resnet18 --image-size 32 --batch-size 2 --device cpu --deterministic no --iterations 1 --warmup 1
expect 0 "$convoy" info resnet18 --image-size 32 --batch-size 2 --device cuda --plan --runs 0 --deterministic sums
expect_sentence 2 'option --deterministic is yes, sums or no, not "perhaps"' "$convoy" info resnet18 --plan --runs 0 --device cuda --deterministic perhaps

# A pass that cannot be recorded is started kernel by kernel.
train_once() { # NAME: the losses in NAME.csv
    expect 0 "$convoy" -q train data --arch resnet18 --image-size 32 --batch-size 2 --epochs 1 --lr 0.01 --training-only --no-checkpoints \
        --device cuda --workers 1 --workspace "$1" --log-every-step "$1.csv"
}
train_once recorded
CONVOY_EMULATED_CAPTURE_FAILS=1 train_once unrecorded
grep -q 'warning: passes are not recorded, and each kernel is started by itself: .*a test asked for that' err ||
    fail "nothing says that passes are not recorded"
expect_same recorded.csv unrecorded.csv

# Grouped convolutions and first ones: the faster kernels, of times that are told; without times the engine's.
rows_of() { # NETWORK LAYER
    expect 0 wide "$convoy" info "$1" --plan --mode train --batch-size 2 --image-size 32 --device cuda --precision fp16 --runs 0
    sed -n "s/^[a-z]* *\(conv2d[a-z_]*\)  *$2 *cuda\.\(conv2d[a-z_]*\) .*/\2/p" out | sort -u | tr '\n' ' '
}
rows_are() { # NETWORK LAYER ROWS WHEN
    local found
    found=$(rows_of "$1" "$2")
    checks=$((checks + 1))
    [ "$found" = "$3 " ] || fail "$4 $2 of $1 runs on $found, not $3"
}
groups_are() { # ROWS WHEN
    rows_are resnext50-32x4d '[a-z0-9.]*conv2' "$1" "$2"
}
first_is() { # ROWS WHEN
    rows_are resnet18 conv1 "$1" "$2"
}
pointwise_is() { # ROWS WHEN
    rows_are resnet18 '[a-z0-9.]*downsample.0' "$1" "$2"
}
ours="conv2d_bwd_data_grouped conv2d_bwd_weights_grouped conv2d_grouped"
CONVOY_EMULATED_MS=2,1 groups_are "$ours" "where ours are faster"
grep -q 'tensor cores: 1.000 ms, cuDNN 2.000 ms' out || fail "the plan does not say both times"
CONVOY_EMULATED_MS=1,2 groups_are "conv2d conv2d_bwd_data conv2d_bwd_weights" "where cuDNN is faster"
groups_are "conv2d conv2d_bwd_data conv2d_bwd_weights" "without times"
CONVOY_CUDA_GROUPED=own groups_are "$ours" "with CONVOY_CUDA_GROUPED=own"
CONVOY_EMULATED_MS=2,1 CONVOY_CUDA_GROUPED=cudnn groups_are "conv2d conv2d_bwd_data conv2d_bwd_weights" "with CONVOY_CUDA_GROUPED=cudnn"
CONVOY_EMULATED_MS=2,1 first_is "conv2d_bwd_weights_first conv2d_first" "where ours are faster"
CONVOY_EMULATED_MS=1,2 first_is "conv2d conv2d_bwd_weights" "where cuDNN is faster"
first_is "conv2d conv2d_bwd_weights" "without times"
CONVOY_CUDA_FIRST=own first_is "conv2d_bwd_weights_first conv2d_first" "with CONVOY_CUDA_FIRST=own"
CONVOY_EMULATED_MS=2,1 CONVOY_CUDA_FIRST=cudnn first_is "conv2d conv2d_bwd_weights" "with CONVOY_CUDA_FIRST=cudnn"
CONVOY_EMULATED_MS=2,1 pointwise_is "conv2d_bwd_data conv2d_bwd_weights conv2d_pointwise" "where ours are faster"
CONVOY_EMULATED_MS=1,2 pointwise_is "conv2d conv2d_bwd_data conv2d_bwd_weights" "where cuDNN is faster"
CONVOY_CUDA_POINTWISE=own pointwise_is "conv2d_bwd_data conv2d_bwd_weights conv2d_pointwise" "with CONVOY_CUDA_POINTWISE=own"
CONVOY_EMULATED_MS=2,1 CONVOY_CUDA_POINTWISE=cudnn pointwise_is "conv2d conv2d_bwd_data conv2d_bwd_weights" "with CONVOY_CUDA_POINTWISE=cudnn"
end_is() { # ROWS WHEN
    rows_are resnet50 layer2.2.conv1 "$1" "$2"
}
CONVOY_EMULATED_MS=2,1 end_is "conv2d_bwd_data_pointwise conv2d_bwd_weights conv2d_pointwise" "where ours are faster"
grep -q 'sums taken in: 1.000 ms, separate 2.000 ms' out || fail "the plan does not say what a block's end takes"
CONVOY_EMULATED_MS=1,2 end_is "conv2d conv2d_bwd_data conv2d_bwd_weights" "where cuDNN is faster"
grep -q 'sums separate: 2.000 ms, separate 1.000 ms' out || fail "the plan does not say what a block's end would take"
end_is "conv2d conv2d_bwd_data conv2d_bwd_weights" "without times"
CONVOY_EMULATED_MS=2,1 CONVOY_CUDA_PATTERNS=separate end_is "conv2d_bwd_data conv2d_bwd_weights conv2d_pointwise" "with CONVOY_CUDA_PATTERNS=separate"
CONVOY_EMULATED_MS=2,1 CONVOY_CUDA_POINTWISE=cudnn end_is "conv2d conv2d_bwd_data conv2d_bwd_weights" "with CONVOY_CUDA_POINTWISE=cudnn"
CONVOY_CUDA_DETERMINISTIC=perhaps expect_sentence 2 'CONVOY_CUDA_DETERMINISTIC is "yes", "no" or "sums", not "perhaps"' "$convoy" info --device cuda resnet18 --plan
CONVOY_CUDA_GROUPED=ours expect_sentence 2 'CONVOY_CUDA_GROUPED is "timed", "own" or "cudnn", not "ours"' "$convoy" info --device cuda resnet18 --plan
expect 0 "$convoy" evaluate data --weights calm/run/model_best.safetensors --device cuda --precision fp16
expect 0 "$convoy" bench train --arch resnet18 --image-size 32 --batch-size 4 --device cuda --precision fp16 --iterations 2
grep -q fp16 out || fail "the benchmark does not say its precision"
finish
