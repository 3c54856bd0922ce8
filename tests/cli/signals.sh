#!/bin/bash
# SIGTERM and SIGINT: the step is finished, a checkpoint saved, exit code 75; --resume gives the run that was never
# stopped. A second Ctrl-C ends at once. The progress line appears on a terminal only.
. "$(dirname "$0")/support_common.sh"
sanitized && per_class=3 || per_class=10
make_shapes data $per_class 1

train() {
    exec "$convoy" train ../data --arch resnet18 --image-size 32 --batch-size 10 --epochs 3 --lr 0.02 --workers 2 \
        --workspace run --log-every-step steps.csv "$@"
}

# start FOLDER OPTIONS...: train in the background ($process) and wait until a step is done. Background jobs of a script
# ignore SIGINT unless a shell with job control starts them.
start() {
    local folder=$1
    shift
    set -m
    (cd "$folder" && train "$@") >out 2>err &
    process=$!
    set +m
    for _ in $(seq 600); do
        [ -e "$folder/steps.csv" ] && [ "$(wc -l <"$folder/steps.csv")" -ge 3 ] && return
        kill -0 $process 2>/dev/null || break
        sleep 0.05
    done
    fail "the training in $folder did not start"
    show
}

mkdir calm
expect 0 bash -c "$(declare -f train); convoy=$convoy; cd calm; train -q"
for signal in TERM INT; do
    mkdir $signal
    start $signal
    kill -$signal $process
    wait $process
    rc=$?
    checks=$((checks + 1))
    [ $rc = 75 ] || { fail "SIG$signal ended with $rc instead of 75"; show; }
    expect_text err '^convoy: stopped.*--resume'
    [ "$(wc -l <$signal/steps.csv)" -lt "$(wc -l <calm/steps.csv)" ] || fail "SIG$signal came too late to test anything"
    expect 0 bash -c "cd $signal && '$convoy' -q train ../data --resume run"
    expect_same calm/steps.csv $signal/steps.csv
    expect_same calm/run/checkpoint.safetensors $signal/run/checkpoint.safetensors
done

# Twice at once: killed by the signal.
mkdir twice
start twice --batch-size 2 --epochs 100
kill -INT $process
kill -INT $process
sleep 0.2
kill -INT $process 2>/dev/null
wait $process
rc=$?
checks=$((checks + 1))
# Both signals may arrive as one while the first is pending; the third one then ends it, or the orderly stop was faster.
[ $rc = 130 ] || [ $rc = 75 ] || fail "two times Ctrl-C ended with $rc"

# ---- the progress line ----
if command -v script >/dev/null; then
    progress() { # on a terminal of 60 columns
        TERM=xterm script -qec "stty cols 60; '$convoy' train data --arch resnet18 --image-size 32 -b 10 --epochs 1 \
            --workspace $1" /dev/null </dev/null >out 2>&1
    }
    run progress seen
    checks=$((checks + 2))
    LC_ALL=C grep -q $'\r.*epoch 1/1  step' out || { fail "no progress line on a terminal"; show; }
    tr '\r' '\n' <out | sed 's/\x1b\[[0-9;]*[A-Za-z]//g' | grep 'step [0-9]' | grep -qE '^.{61,}' &&
        fail "a progress line is wider than the terminal"
    run env NO_COLOR=1 TERM=xterm script -qec "'$convoy' train nowhere" /dev/null
    checks=$((checks + 1))
    grep -q $'\e\[[0-9;]*m' out && fail "NO_COLOR is not honoured"
else
    skip_part "no script(1) here to make a terminal"
fi
finish
