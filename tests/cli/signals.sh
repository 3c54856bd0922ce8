#!/bin/bash
# SIGTERM, SIGINT and SIGHUP: the step is finished, a checkpoint saved, exit code 75; --resume gives the run that was never
# stopped. A second Ctrl-C ends at once. The progress line appears on a terminal only.
. "$(dirname "$0")/support_common.sh"
narrow # with more steps, so that signals come in time
sanitized && per_class=10 || per_class=40
make_shapes data $per_class 1

train() {
    exec "$convoy" train ../data --arch resnet18 --image-size 32 --batch-size 10 --epochs 3 --lr 0.02 --workers 2 \
        --workspace run --log-every-step run/steps.csv "$@"
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
        [ -e "$folder/run/steps.csv" ] && [ "$(wc -l <"$folder/run/steps.csv")" -ge 3 ] && return
        kill -0 $process 2>/dev/null || break
        sleep 0.05
    done
    fail "the training in $folder did not start"
    show
}

# Where this script runs under nohup, what it starts is not to end by SIGHUP.
[ $((0x$(awk '/^SigIgn/ { print $2 }' /proc/self/status) & 1)) = 0 ] && hup=HUP || hup=

mkdir calm
expect 0 bash -c "$(declare -f train); convoy=$convoy; cd calm; train -q"
for signal in TERM INT $hup; do
    mkdir $signal
    start $signal
    kill -$signal $process
    wait $process
    rc=$?
    checks=$((checks + 1))
    [ $rc = 75 ] || { fail "SIG$signal ended with $rc instead of 75"; show; }
    expect_text err '^convoy: stopped.*--resume'
    [ "$(wc -l <$signal/run/steps.csv)" -lt "$(wc -l <calm/run/steps.csv)" ] || fail "SIG$signal came too late to test anything"
    expect 0 bash -c "cd $signal && '$convoy' -q train ../data --resume run"
    expect_same calm/run/steps.csv $signal/run/steps.csv
    expect_same calm/run/checkpoint.safetensors $signal/run/checkpoint.safetensors
done

# ---- a terminal that is closed, under nohup and not; also that of several processes ----
# hang_up FOLDER PROGRAM...: the training there on a terminal of its own, which is closed after three steps. Its exit code
# goes to $rc.
hang_up() {
    mkdir "$1"
    rc=$(/usr/bin/python3 - "$@" <<'PY'
import os, pty, select, sys, time
folder, command = sys.argv[1], sys.argv[2:]
steps = folder + "/run/steps.csv"
pid, terminal = pty.fork()
if pid == 0:
    os.chdir(folder)
    os.execvp(command[0], command)
until = time.time() + 60
while time.time() < until:
    if select.select([terminal], [], [], 0.05)[0]:
        try:
            os.read(terminal, 65536)
        except OSError:
            break
    if os.path.exists(steps) and open(steps).read().count("\n") >= 3:
        break
os.close(terminal)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
PY
    )
}
on_terminal=("$convoy" train ../data --arch resnet18 --image-size 32 --batch-size 10 --epochs 3 --lr 0.02 --workers 2
    --workspace run --log-every-step run/steps.csv)
for row in ${hup:+'one' 'two --processes 2'}; do
    read -r folder options <<<"$row"
    # shellcheck disable=SC2086
    hang_up $folder "${on_terminal[@]}" $options
    checks=$((checks + 2))
    [ "$rc" = 75 ] || fail "$folder: a closed terminal ended with $rc instead of 75"
    [ "$(wc -l <$folder/run/steps.csv)" -lt "$(wc -l <calm/run/steps.csv)" ] || fail "$folder: it went on"
    expect 0 "$convoy" info $folder/run/checkpoint.safetensors
done
hang_up alone nohup "${on_terminal[@]}"
checks=$((checks + 1))
[ "$rc" = 0 ] || fail "nohup: a closed terminal ended with $rc"
expect_same calm/run/checkpoint.safetensors alone/run/checkpoint.safetensors

# ---- the second Ctrl-C ends at once: steps of the reference backend on 224 pixels take seconds ----
# wait_for FILE PATTERN: until a line matches; at most a minute.
wait_for() {
    for _ in $(seq 600); do
        grep -q "$2" "$1" 2>/dev/null && return
        kill -0 $process 2>/dev/null || break
        sleep 0.1
    done
    fail "$1 never had a line with $2"
    show
}

mkdir twice
set -m
(cd twice && train --device ref --image-size 224 --eval-resize 224 --training-only) >out 2>err &
process=$!
set +m
wait_for twice/run/steps.csv '^epoch' # the log is opened last before the first step
sleep 0.5
kill -INT $process
wait_for err 'once more ends at once'
kill -INT $process
wait $process
rc=$?
checks=$((checks + 2))
[ $rc = 130 ] || { fail "two times Ctrl-C ended with $rc instead of 130"; show; }
[ "$(wc -l <twice/run/steps.csv)" = 1 ] || fail "a step was over before the second Ctrl-C: nothing was tested"
[ ! -e twice/run/checkpoint.safetensors ] || fail "the second Ctrl-C waited for a checkpoint"

# ---- without checkpoints nothing is promised ----
mkdir unsaved
start unsaved --no-checkpoints --epochs 100
kill -TERM $process
wait $process
rc=$?
checks=$((checks + 1))
[ $rc = 75 ] || { fail "SIGTERM ended with $rc instead of 75"; show; }
expect_text err '^convoy: stopped.*no checkpoint is kept$'
if grep -qE 'saving|--resume' err; then fail "a checkpoint is promised under --no-checkpoints"; show; fi

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
