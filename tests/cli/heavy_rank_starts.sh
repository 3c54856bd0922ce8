#!/bin/bash
# Every way of starting ranks; options, files and threads that differ between them. What ranks say to each other is
# tested under sanitizers by ranks.sh and rank_failures.sh.
. "$(dirname "$0")/support_rank_runs.sh"
calm

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

# ---- threads: each rank continues with its own; another number of ranks begins anew; who is not bound shares ----
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
expect_text err "^device .* $total threads?;"
expect_text err 'the learning rate changes from 0.0390625 to 0.01953125$'

# Rank 0 cannot save: the other does not end with 75 before it knows. With 73 where the folder had gone when a file was
# to be made, with 74 where it went while one was being written.
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
[[ $rc = 7[34] ]] || { fail "rank 1 ended with $rc although rank 0 could not save"; cat err1 >&2; }
wait $first
first_rc=$?
[ $first_rc = $rc ] || { fail "rank 0 could not save and ended with $first_rc, rank 1 with $rc"; show; }
expect_text err 'cannot (create|write) .*unsaved'
expect_text err "^device .* $((total > 1 ? total / 2 : 1)) threads?;"
export OMP_NUM_THREADS=1

expect_sentence 2 'WORLD_SIZE' env RANK=0 WORLD_SIZE=none "$convoy" train data
expect_sentence 2 'option --processes' env RANK=0 WORLD_SIZE=2 "$convoy" train data --processes 2
expect_sentence 66 'cannot|nowhere' "$convoy" -q train nowhere --processes 2
finish
