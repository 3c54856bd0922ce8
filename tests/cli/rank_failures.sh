#!/bin/bash
# Nobody hangs when another rank is killed, stopped or frozen, and the run continues from what is there.
wide_ranks=1 # whose moments are those of networks that take their time
. "$(dirname "$0")/support_rank_runs.sh"
calm

# ---- ranks that end, stop, or answer no more ----
start killed --processes 2 --epochs 1000
kill -KILL "${ranks[1]}"
ended 20
[ $rc = 1 ] || { fail "a killed rank ended the run with $rc"; show; }
expect_text err 'rank 1 .*(ended without a word|was closed)'
expect_text err 'rank 1 was killed by signal 9'

# Rank 0, most likely while it saves: what is there is whole, and the run continues from it.
start saving --processes 2 --checkpoint-every 1
kill -KILL "${ranks[0]}"
ended 20
[ $rc = 1 ] || { fail "rank 0 was killed, and the run ended with $rc"; show; }
expect_text err 'rank 0 was killed by signal 9'
expect 0 bash -c "cd saving && '$convoy' -q train ../data --resume run --processes 2"
expect_same calm/run/steps.csv saving/run/steps.csv

# Asked to stop in a validation: all stop in it. An image that both ranks could not read in their turn counts once.
cp -r data spoilt
rm -r spoilt/val
for image in $(find spoilt -name '*.jpg' | LC_ALL=C sort | sed -n '1p;8p;15p'); do
    truncate -s 20 "$image"
done
for image in $(find "$work/data/val" -name '*.jpg'); do
    yes "$image"$'\t'"$(basename "$(dirname "$image")")" | head -n 400
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

# Stopped at its end, when nobody waits for it any more: what the run has made is there.
for rank in 0 1; do
    begin=$SECONDS
    mkdir ended$rank
    expect $((1 - rank)) env CONVOY_FAULT=stop CONVOY_FAULT_RANK=$rank LD_PRELOAD="$CONVOY_BUILD/tests/libfault_shim.so" \
        ASAN_OPTIONS="$ASAN_OPTIONS:verify_asan_link_order=0" timeout 120 bash -c "$(declare -f train); convoy=$convoy; cd ended$rank; train --processes 2"
    expect_text err "^convoy: rank $rank was stopped .*: killed"
    [ $((SECONDS - begin)) -lt 60 ] || fail "a rank that was stopped at its end was waited for $((SECONDS - begin)) s"
    expect_same calm/run/steps.csv ended$rank/run/steps.csv
    expect_same calm/run/checkpoint.safetensors ended$rank/run/checkpoint.safetensors
done

mkdir temporary
export TMPDIR=$work/temporary
start orphans --processes 2 --epochs 1000
kill -KILL $parent
for process in "${ranks[@]}"; do # they end by themselves, on a busy machine not at once
    timeout 2 tail --pid="$process" -f /dev/null
done
ended 5
[ -z "$(ls -A temporary)" ] || fail "a killed parent left $(ls -A temporary)"
finish
