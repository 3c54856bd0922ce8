#!/bin/bash
# kill -9 at random moments, then --resume, until the training is done: the losses of all steps and the final checkpoint
# are those of a run that nobody disturbed, byte for byte. Augmentation on, 4 loader threads, 1 and 2 compute threads.
. "$(dirname "$0")/support_common.sh"
narrow
if sanitized; then
    per_class=6 epochs=4 every=3 wanted_kills=2
else
    per_class=20 epochs=5 every=7 wanted_kills=4
fi
make_shapes data $per_class 1
seed=${CONVOY_TEST_SEED:-$$}
RANDOM=$seed
echo "random seed $seed (CONVOY_TEST_SEED sets it)"

train() { # run in the folder of the variant, so that both know the same paths; in a subshell, which it replaces: the kill
    # must not hit a shell that waits for the program
    exec "$convoy" -q train ../data --arch resnet18 --image-size 32 --batch-size 10 --epochs $epochs --lr 0.05 --warmup 1 \
        --label-smoothing 0.1 --mixup 0.4 --class-weights circle=2 --workers 4 --checkpoint-every $every --workspace run --log-every-step run/steps.csv "$@"
}

calm_train() (train)

lines() { # of run/steps.csv, without starting a program
    local text=()
    [ -e run/steps.csv ] && mapfile text <run/steps.csv
    echo ${#text[@]}
}

# kill_somewhere PROCESS: let it do up to five more steps (or end) and up to 0.1 s more, then kill it. That is anywhere: while
# it starts, computes, validates, saves, writes a line.
kill_somewhere() {
    local target=$(($(lines) + RANDOM % 6))
    while [ "$(lines)" -lt $target ] && kill -0 "$1" 2>/dev/null; do
        sleep 0.01
    done
    sleep "$(printf '0.%03d' $((RANDOM % 100)))"
    kill -9 "$1" 2>/dev/null
}

for threads in 1 2; do
    export OMP_NUM_THREADS=$threads
    rm -rf calm disturbed
    mkdir calm disturbed
    cd calm || exit 1
    expect 0 calm_train
    cd ../disturbed || exit 1

    kills=0
    for attempt in $(seq 60); do
        resume=()
        [ -e run/checkpoint.safetensors ] && resume=(--resume run)
        (train ${resume[@]+"${resume[@]}"}) >"$work/out" 2>"$work/err" &
        process=$!
        if [ $kills -lt $wanted_kills ]; then
            kill_somewhere $process
            wait $process 2>/dev/null
            code=$?
            [ $code = 137 ] && kills=$((kills + 1))
        else
            wait $process
            code=$?
        fi
        [ $code = 0 ] && break
        if [ $code != 137 ]; then
            rc=$code
            fail "attempt $attempt with $threads threads ended with $code"
            show
            break
        fi
    done
    cd "$work" || exit 1
    echo "$threads threads: $kills times killed, done in attempt $attempt"
    [ $kills -gt 0 ] || fail "nothing was killed"
    expect_same calm/run/steps.csv disturbed/run/steps.csv
    expect_same calm/run/checkpoint.safetensors disturbed/run/checkpoint.safetensors
    expect_same calm/run/model_best.safetensors disturbed/run/model_best.safetensors
    steps=$((per_class * epochs))
    checks=$((checks + 1))
    [ "$(tail -n +2 calm/run/steps.csv | wc -l)" = $steps ] || fail "steps.csv does not hold $steps steps"
done
finish
