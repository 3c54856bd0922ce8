#!/bin/bash
# Going back after a divergence, exactly: killed and stopped at several steps; with accumulation and a moving average, with
# RMSprop, and on two ranks.
. "$(dirname "$0")/support_common.sh"
. "$(dirname "$0")/support_rewind.sh"
make_shapes data 6 1

# Epochs of 30 steps: states in the middle of an epoch too.
more=(--batch-size 2 --lr 0.25)
expect 0 train calm "${more[@]}"
expect_rewinds err
expect_text err 'state after step (25|30|55)'
for lines in 8 33; do
    stop_and_resume stopped $lines "${more[@]}"
    same_as calm stopped
done
# Killed in the middle of what follows a checkpoint.
(begin_train killed "${more[@]}" --checkpoint-every 4) >out 2>err &
process=$!
for _ in $(seq 600); do
    [ -e killed/run/steps.csv ] && [ "$(wc -l <killed/run/steps.csv)" -ge 15 ] && break
    sleep 0.05
done
kill -9 $process
wait $process 2>/dev/null
expect 0 resume_train killed
same_as calm killed

more=(--use-ema 0.9 --batch-size 2 --optimizer-batch-size 4)
expect 0 train calm "${more[@]}"
expect_rewinds err
stop_and_resume stopped 10 "${more[@]}"
same_as calm stopped

more=(--optimizer rmsprop --lr 0.05)
expect 0 train calm "${more[@]}"
expect_rewinds err
stop_and_resume stopped 10 "${more[@]}"
same_as calm stopped

more=(--processes 2 --batch-size 2)
again=(--processes 2)
expect 0 train calm "${more[@]}"
expect_rewinds err
stop_and_resume stopped 10 "${more[@]}"
same_as calm stopped
# With fewer ranks the steps have another size: there is nothing to go back to, and the run continues.
again=()
stop_and_resume other 10 "${more[@]}"
checks=$((checks + 1))
[ $stops -ge 3 ] || fail "only $stops runs were stopped"
finish
