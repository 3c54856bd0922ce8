#!/bin/bash
# Several processes train one network: the same bits in every run, a stop that all agree on, a resumed run that is the
# one that was never stopped, and nobody who hangs when another is killed, stopped, or started otherwise.
. "$(dirname "$0")/support_common.sh"
. "$(dirname "$0")/support_ranks.sh"
sanitized && per_class=2 || per_class=6
make_shapes data $per_class 1

train() {
    exec "$convoy" train "${set:-../data}" --arch resnet18 --image-size 32 --batch-size 5 --epochs 2 --lr 0.02 --workers 1 \
        --quantize --workspace run --log-every-step steps.csv "$@"
}

# start FOLDER OPTIONS...: train in the background ($parent); its ranks are ${ranks[@]}. Waits for `lines` of the log.
start() {
    local folder=$1
    shift
    mkdir -p "$folder"
    set -m
    (cd "$folder" && train "$@") >out 2>err &
    parent=$!
    set +m
    await_step "$folder"
    ranks=()
    for process in $(pgrep -P $parent); do
        ranks[$(tr '\0' '\n' <"/proc/$process/environ" | sed -n 's/^RANK=//p')]=$process
    done
    expect_two "$folder"
    checks=$((checks + 1))
    for process in "${ranks[@]}"; do # where it is still there
        grep -qsvx convoy "/proc/$process/comm" && fail "rank $process is called $(cat "/proc/$process/comm")"
    done
}

# ---- what one rank is told all do ----
temporary=$work/a-folder-for-temporary-files-whose-name-is-longer-than-others
mkdir calm $temporary
TMPDIR=$temporary expect 0 bash -c "$(declare -f train); convoy=$convoy; cd calm; train --processes 2"
expect_text calm/run/rank-1.log 'this is rank 1 of 2 on 1 host'
start stopped --processes 2
kill -TERM "${ranks[1]}"
ended 60
[ $rc = 75 ] || { fail "SIGTERM to rank 1 ended with $rc instead of 75"; show; }
expect_text err 'to go on: convoy train --resume .*run.* --processes 2$'
[ "$(wc -l <stopped/steps.csv)" -lt "$(wc -l <calm/steps.csv)" ] || fail "the signal came too late to test anything"

# ---- another number of ranks: steps of 15 or 5 images instead of 10, and the logs go on where they were ----
goes_on() { # FOLDER PROCESSES: resume in the folder, in which a run was stopped; its logs stay, and steps count on
    cp -r "$1" before
    expect 0 bash -c "cd '$1' && '$convoy' train ../data --resume run --processes $2"
    expect_text out '^2 epochs'
    for log in steps.csv "run/$(basename before/run/events.out.*)"; do
        checks=$((checks + 1))
        cmp -n "$(stat -c %s "before/$log")" "before/$log" "$1/$log" || fail "$log of $1 has lost what it held"
    done
    expect_same <(tail -n +2 "$1/steps.csv" | cut -d, -f2) <(seq $(($(wc -l <"$1/steps.csv") - 1)))
    rm -r before
}
numbers='3 1'
sanitized && numbers=3
for n in $numbers; do
    cp -r stopped other$n
    goes_on other$n $n
    expect_text err 'the epoch goes on behind its image [1-9][0-9]*; the learning rate stays 0.02$'
done
if ! sanitized; then
    mkdir whole
    expect 0 bash -c "$(declare -f train); convoy=$convoy; cd whole; train -q --run-epochs 1"
    TMPDIR='' goes_on whole 3
fi
expect 0 bash -c "cd stopped && '$convoy' -q train ../data --resume run --processes 2"
expect_same calm/steps.csv stopped/steps.csv
expect_same calm/run/checkpoint.safetensors stopped/run/checkpoint.safetensors
expect_same <(cut -d, -f1-4 calm/run/metrics.csv) <(cut -d, -f1-4 stopped/run/metrics.csv)

# ---- one validation, shared ----
for n in 1 3; do
    expect 0 "$convoy" -q train data --resume calm/run --evaluate --processes $n
    cp out evaluated$n
done
checks=$((checks + 1))
grep -q ': 10 images$' evaluated1 || { fail "not all images were validated"; show; }
expect_same evaluated1 evaluated3

# ---- failures ----
start killed --processes 2 --epochs 1000
kill -KILL "${ranks[1]}"
ended 20
[ $rc = 1 ] || { fail "a killed rank ended the run with $rc"; show; }
expect_text err 'rank 1 .*(ended without a word|was closed)'
expect_text err 'rank 1 was killed by signal 9'

# Rank 0, most likely while it saves: what is there is whole, and the run goes on from it.
start saving --processes 2 --checkpoint-every 1
kill -KILL "${ranks[0]}"
ended 20
[ $rc = 1 ] || { fail "rank 0 was killed, and the run ended with $rc"; show; }
expect_text err 'rank 0 was killed by signal 9'
expect 0 bash -c "cd saving && '$convoy' -q train ../data --resume run --processes 2"
expect_same calm/steps.csv saving/steps.csv

# Asked to stop in a validation: all stop in it. An image that both ranks could not read in their turn counts once.
cp -r data spoilt
rm -r spoilt/val
for image in $(find spoilt -name '*.jpg' | LC_ALL=C sort | sed -n '1p;8p;15p'); do
    truncate -s 20 "$image"
done
for image in $(find "$work/data/val" -name '*.jpg'); do
    for _ in $(seq 400); do
        printf '%s\t%s\n' "$image" "$(basename "$(dirname "$image")")"
    done
done >many
set=../spoilt start busy --processes 2 --epochs 3 --eval-count 1 --val-list ../many --print-freq 1
for _ in $(seq 600); do
    grep -qs '"step": \[2, [0-9]*, ' busy/run/experiment_raport.json && break
    sleep 0.05
done
kill -TERM "${ranks[1]}"
ended 60
[ $rc = 75 ] || { fail "SIGTERM in a validation ended with $rc"; show; }
expect_text busy/run/experiment_raport.json '"val.rank": 0'
batches=$(grep -c '"step": \[2, [0-9]*, .*"val.top1"' busy/run/experiment_raport.json)
checks=$((checks + 1))
[ "$batches" -lt 60 ] || fail "rank 0 did $batches batches, its whole share, before it stopped"
expect_text err '^epoch +2/3 .* bad images 3$'

sanitized && limit=15 || limit=4 # longer than setting up takes on a machine with other work
start frozen --processes 2 --epochs 1000 --comm-timeout $limit
kill -STOP "${ranks[1]}"
ended 40
[ $rc = 1 ] || { fail "a frozen rank ended the run with $rc"; show; }
expect_text err 'rank 1 on host .* has not answered for'

start silent --processes 2 --epochs 1000 --comm-timeout $limit # rank 0 cannot say what the others know
kill -STOP "${ranks[0]}"
ended 40
[ $rc = 1 ] || { fail "a frozen rank 0 ended the run with $rc"; show; }
expect_text err '^convoy: rank 0 on host .* has not answered'

start orphans --processes 2 --epochs 1000
kill -KILL $parent
for process in "${ranks[@]}"; do # they end by themselves, on a busy machine not at once
    timeout 2 tail --pid="$process" -f /dev/null
done
ended 5

sanitized && finish # every way of starting is in the Release build's tests, and what ranks say to each other is behind us

# ---- started by hand, as other launchers do ----
hand() { # RANK OPTIONS...: replaces the shell
    local rank=$1
    shift
    exec env RANK="$rank" WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port "$convoy" train "${set:-data}" --arch resnet18 \
        --image-size 32 --batch-size 5 --epochs 1 --workers 1 --workspace hand --comm-timeout 60 "$@"
}
by_hand() (hand "$@")
port=$((20000 + RANDOM % 10000))
by_hand 1 --lr 0.01 >out1 2>err1 &
other=$!
expect_sentence 2 'option --lr is .*0\.01.* on rank 1 and .*0\.02.* on rank 0' by_hand 0 --lr 0.02 -q
wait $other
rc=$?
checks=$((checks + 1))
[ $rc = 2 ] || fail "rank 1 did not refuse: $rc"
mkdir nothing
by_hand 1 --resume nothing >out1 2>err1 & # on its host the folder has no checkpoint
expect 2 by_hand 0 --resume calm/run
expect_text err 'the checkpoint of --resume is .none. on rank 1 and .epoch 2, step [0-9]*. on rank 0'
wait $!
by_hand 1 --batch-size auto >out1 2>err1 &
expect_sentence 2 'option --batch-size is .auto. on rank 1 and .5. on rank 0' by_hand 0 -q
wait $!
# The same options, and files of other contents.
in_folder() (cd "$1" && shift && hand "$@")
unlike() { # PATTERN OPTIONS...: rank 0 in the folder "here", rank 1 in "there"
    local pattern=$1
    shift
    in_folder there 1 "$@" >out1 2>err1 &
    expect_sentence 2 "$pattern" in_folder here 0 "$@" -q
    wait $!
}
mkdir here there
echo circle=2 >here/weights
echo circle=3 >there/weights
set=../data unlike 'the fingerprint of the class weights' --class-weights weights
"$convoy" -q dataset shapes here/boxes --boxes --train-images 5 --val-images 2
cp -r here/boxes there
sed -i 's/"bbox": \[[0-9]*,/"bbox": [0,/' there/boxes/annotations/instances_train.json
set=boxes unlike 'the fingerprint of the boxes of the training set' --arch ssd320 --image-size 320

by_hand 1 --lr-per-256 1 --threads 2 >out1 2>err1 &
other=$!
expect 0 by_hand 0 --lr-per-256 1 --threads 1
wait $other || fail "rank 1 failed"
checks=$((checks + 1))
[ ! -s out1 ] && [ ! -s err1 ] || { fail "rank 1 speaks although nobody gave it a log"; cat out1 err1 >&2; }
expect_text err 'this is rank 0 of 2'

# ---- threads: each rank goes on with its own; another number of ranks begins anew; who is not bound shares ----
threads_of() { # the threads of the ranks, as the checkpoint has them
    grep -aoE '\\"rank_threads\\": \[[0-9, ]*\]' hand/checkpoint.safetensors | tr -dc '0-9,'
}
total=$(env -u OMP_NUM_THREADS "$convoy" info | sed -n 's/.*, \([0-9]*\) threads,.*/\1/p')
checks=$((checks + 2))
[ "$(threads_of)" = 1,2 ] || fail "the ranks had 1 and 2 threads, and the checkpoint says $(threads_of)"
by_hand 1 --resume hand --epochs 2 >out1 2>err1 &
expect 0 by_hand 0 --resume hand --epochs 2
wait $! || fail "rank 1 failed"
[ "$(threads_of)" = 1,2 ] || fail "the ranks go on with $(threads_of) threads instead of 1,2"
expect 0 env -u OMP_NUM_THREADS "$convoy" train data --resume hand --epochs 3
expect_text err "^device .* $total threads;"
expect_text err 'the learning rate changes from 0.0390625 to 0.01953125$'

# Rank 0 cannot save: the other does not end with 75 before it knows.
unset OMP_NUM_THREADS
hand 1 --lr 0.01 --workspace unsaved --epochs 1000 >out1 2>err1 &
other=$!
hand 0 --lr 0.01 --workspace unsaved --epochs 1000 --log-every-step unsaved.csv >out 2>err &
first=$!
for _ in $(seq 600); do
    [ -e unsaved.csv ] && [ "$(wc -l <unsaved.csv)" -ge 2 ] && break
    sleep 0.05
done
mv unsaved elsewhere
kill -TERM $other
wait $other
rc=$?
checks=$((checks + 2))
[ $rc = 73 ] || { fail "rank 1 ended with $rc although rank 0 could not save"; cat err1 >&2; }
wait $first
rc=$?
[ $rc = 73 ] || { fail "rank 0 ended with $rc although it could not save"; show; }
expect_text err "^device .* $((total > 1 ? total / 2 : 1)) threads;"
export OMP_NUM_THREADS=1

expect_sentence 2 'WORLD_SIZE' env RANK=0 WORLD_SIZE=none "$convoy" train data
expect_sentence 2 'option --processes' env RANK=0 WORLD_SIZE=2 "$convoy" train data --processes 2
expect_sentence 66 'cannot|nowhere' "$convoy" -q train nowhere --processes 2
finish
