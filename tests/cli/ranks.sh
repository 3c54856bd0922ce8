#!/bin/bash
# Several processes train one network: the same bits in every run, a stop that all agree on, a resumed run that is the
# one that was never stopped, and one validation that they share.
per_class=40 # so many steps that a signal comes in time
. "$(dirname "$0")/support_rank_runs.sh"

# ---- what one rank is told all do ----
temporary=$work/a-folder-for-temporary-files-whose-name-is-longer-than-others
mkdir $temporary
TMPDIR=$temporary calm
expect_text calm/run/rank-1.log 'this is rank 1 of 2 on 1 host'
[ -z "$(ls -A $temporary)" ] || fail "files were left in TMPDIR: $(ls -A $temporary)"
start stopped --processes 2
kill -TERM "${ranks[1]}"
ended 60
[ $rc = 75 ] || { fail "SIGTERM to rank 1 ended with $rc instead of 75"; show; }
expect_text err 'to continue: convoy train --resume .*run.* --processes 2$'
[ "$(wc -l <stopped/run/steps.csv)" -lt "$(wc -l <calm/run/steps.csv)" ] || fail "the signal came too late to test anything"

# ---- another number of ranks: steps of 15 or 5 images instead of 10, and the logs go on where they were ----
goes_on() { # FOLDER PROCESSES: resume in the folder, in which a run was stopped; its logs stay, and steps count on
    cp -r "$1" before
    expect 0 bash -c "cd '$1' && '$convoy' train ../data --resume run --processes $2"
    expect_text out '^2 epochs'
    for log in run/steps.csv "run/$(basename before/run/events.out.*)"; do
        checks=$((checks + 1))
        cmp -n "$(stat -c %s "before/$log")" "before/$log" "$1/$log" || fail "$log of $1 has lost what it held"
    done
    expect_same <(tail -n +2 "$1/run/steps.csv" | cut -d, -f2) <(seq $(($(wc -l <"$1/run/steps.csv") - 1)))
    rm -r before
}
numbers='3 1'
sanitized && numbers=3
for n in $numbers; do
    cp -r stopped other$n
    goes_on other$n $n
    expect_text err 'the epoch continues after its image [1-9][0-9]*; the learning rate stays 0.02$'
done
if ! sanitized; then
    mkdir whole
    expect 0 bash -c "$(declare -f train); convoy=$convoy; cd whole; train -q --run-epochs 1"
    TMPDIR='' goes_on whole 3
    mkdir divided # steps of 10 images in two passes, and then in one of two ranks
    expect 0 bash -c "$(declare -f train); convoy=$convoy; cd divided; train -q --run-epochs 1 --optimizer-batch-size 10"
    goes_on divided 2
    expect_text err 'was trained by 1 process, and now there are 2: the run continues, but not bit for bit as it would have$'
fi
expect 0 bash -c "cd stopped && '$convoy' -q train ../data --resume run --processes 2"
checks=$((checks + 1))
grep 'was trained by' err && fail "as many ranks as before are warned of"
expect_same calm/run/steps.csv stopped/run/steps.csv
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
# ---- batches that are more together than there are images ----
images=$(find data/train -type f | wc -l)
expect 2 "$convoy" -q train data --workspace none --batch-size "$images" --processes 3
expect_text err "option --batch-size $images for each of 3 processes: the training set has only $images images\$"
finish
