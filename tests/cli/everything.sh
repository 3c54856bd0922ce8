#!/bin/bash
# Everything that can go wrong together: mixup, smoothing, class weights, a moving average, accumulated gradients, bf16,
# a balanced sampler, a rate that moves with the step, small training crops. SIGTERM comes at a random step (CONVOY_TEST_SEED
# repeats one); the resumed run must end as the one that was never stopped, bit for bit.
. "$(dirname "$0")/support_common.sh"
RANDOM=${CONVOY_TEST_SEED:-$$}
echo "CONVOY_TEST_SEED=${CONVOY_TEST_SEED:-$$}"
# With few channels a step takes milliseconds: there have to be many, so that the signal comes before the end.
if without_bf16; then
    precision=fp32
    narrow
    sanitized && per_class=16 || per_class=60
else
    precision=bf16
    sanitized && per_class=4 || per_class=12
fi
make_shapes data $per_class 1

train() {
    exec "$convoy" -q train ../data --arch resnet18 --image-size 48 --eval-resize 48 --train-crop-size 32 --precision $precision \
        --batch-size 5 --optimizer-batch-size 10 --epochs 3 --warmup 1 --lr-per-256 0.5 --lr-schedule cosine --lr-unit step \
        --mixup 0.2 --label-smoothing 0.1 --class-weights balanced --sampler balanced --use-ema 0.99 --best-of ema \
        --augmentation autoaugment --workers 2 --threads 1 --workspace run --log-every-step run/steps.csv "$@"
}

mkdir calm stopped
expect 0 bash -c "$(declare -f train); convoy=$convoy; precision=$precision; cd calm; train"
steps=$(($(wc -l <calm/run/steps.csv) - 1))
at=$((RANDOM % (steps * 2 / 3) + 1))
cd stopped || exit 1
(train) 2>"$work/err" &
process=$!
for _ in $(seq 3000); do # rows are written one batch late
    [ -e run/steps.csv ] && [ "$(wc -l <run/steps.csv)" -gt $at ] && break
    kill -0 $process 2>/dev/null || break
    sleep 0.01
done
kill -TERM $process
wait $process
rc=$?
cd "$work" || exit 1
checks=$((checks + 1))
[ $rc = 75 ] || { fail "SIGTERM after step $at of $steps ended with $rc instead of 75"; show; }
[ "$(wc -l <stopped/run/steps.csv)" -le $steps ] || fail "SIGTERM came too late to test anything"
expect 0 bash -c "cd stopped && '$convoy' -q train ../data --resume run"
for file in run/steps.csv run/metrics.csv run/checkpoint.safetensors run/model_best.safetensors; do
    expect_same calm/$file stopped/$file
done
finish
