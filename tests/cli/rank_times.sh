#!/bin/bash
# Where the time of an epoch went on each rank: one rank is held up again and again and must be named as the slowest, on
# the terminal, in the log and in the table; a resumed run has each epoch once.
. "$(dirname "$0")/support_common.sh"
# Ten steps an epoch: held up several times in each, whatever moments that hits.
make_shapes data 16 1

"$convoy" train data --arch resnet18 --image-size 32 --batch-size 5 --epochs 3 --run-epochs 2 --lr 0.02 --workers 1 \
    --workspace run --processes 3 >out 2>err &
parent=$!
while [ ! -e run/ranks.csv ] && kill -0 $parent 2>/dev/null; do # made once the ranks have met
    sleep 0.1
done
held=
for process in $(pgrep -P $parent); do
    tr '\0' '\n' <"/proc/$process/environ" | grep -q '^RANK=1$' && held=$process
done
# Two thirds of its time it stands still: it takes three times as long as the others, which share the cores that it leaves.
while kill -0 $parent 2>/dev/null; do
    kill -STOP "$held" 2>/dev/null
    sleep 0.4
    kill -CONT "$held" 2>/dev/null
    sleep 0.2
done
wait $parent
rc=$?
checks=$((checks + 1))
[ $rc = 0 ] || { fail "the run ended with $rc"; show; }
checks=$((checks + 1))
[ "$(grep -c '^  ranks: computing .* s, waiting for data .* s, for others .* s; slowest: rank' err)" = 2 ] || { fail "not each epoch has a line about its ranks"; show; }
# The second epoch is held up from its beginning.
expect_text <(tail -n 2 err) 'slowest: rank 1 on host .*: [0-9]+ % above the median, computing$'
checks=$((checks + 1))
[ "$(head -n 1 run/ranks.csv)" = epoch,rank,steps,compute,data,wait ] || fail "ranks.csv has other columns"
# Rank 1 computes longest, waits for the others less than rank 2, and no part is negative or longer than the epoch.
awk -F, 'NR > 1 && ($4 < 0 || $5 < 0 || $6 < 0) { exit 1 }
    NR > 1 && $1 == 1 { compute[$2] = $4; wait_[$2] = $6; sum[$2] = $4 + $5 + $6; n++ }
    END {
        if (n != 3) exit 1
        if (!(compute[1] > 1.2 * compute[0] && compute[1] > 1.2 * compute[2])) exit 1
        # Rank 0 begins an epoch later: it draws the report of the last one, and the others wait for it.
        if (!(wait_[1] < wait_[2])) exit 1
        if (sum[2] > 1.2 * sum[1] + 0.5 || sum[2] < sum[1] / 1.2 - 0.5) exit 1 # the epoch, for both
    }' run/ranks.csv || { fail "the times of the second epoch are not those of a rank 1 that is held up"; cat run/ranks.csv >&2; }
checks=$((checks + 1))
expect_text run/experiment_raport.json '"step": \[1\], "data": \{"train.rank_compute_time": \[[0-9.e-]+, [0-9.e-]+, [0-9.e-]+\], "train.rank_data_time": \[.*\], "train.rank_wait_time": \['
expect_text run/experiment_raport.json '"step": \[1\], .*"train.wait_time": [0-9.e-]+, "train.slowest_rank": 1, "train.slowest_excess": [0-9.e-]+'

# ---- resumed with other ranks: each epoch once ----
expect 0 "$convoy" train --resume run --run-epochs 1 --processes 2
expect_text err '^  ranks: computing .*; slowest: rank [01] on host'
checks=$((checks + 1))
[ "$(cut -d, -f1,2 run/ranks.csv | tr '\n' ' ')" = 'epoch,rank 0,0 0,1 0,2 1,0 1,1 1,2 2,0 2,1 ' ] || { fail "ranks.csv has other rows"; cat run/ranks.csv >&2; }

# ---- alone: nothing of it ----
expect 0 "$convoy" train data --arch resnet18 --image-size 32 --batch-size 5 --epochs 1 --prof 1 --workers 1 --workspace alone
checks=$((checks + 1))
! grep -q 'ranks:' err && [ ! -e alone/ranks.csv ] && ! grep -q 'rank_' alone/experiment_raport.json || fail "a single process has ranks"
finish
