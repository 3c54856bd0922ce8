#!/bin/bash
# Ranks that are killed, stopped and starved of memory at random moments, again and again: all end within the time limit,
# the checkpoint is whole, and the run that is resumed from it ends like the one that nothing happened to.
. "$(dirname "$0")/support_common.sh"
rounds=${CONVOY_TEST_ROUNDS:-20}
RANDOM=${CONVOY_TEST_SEED:-$$}
limit=5 # seconds, of --comm-timeout
echo "CONVOY_TEST_SEED=${CONVOY_TEST_SEED:-$$}"
command -v prlimit >/dev/null || skip "prlimit (util-linux) is missing"
make_shapes data 6 2

train() {
    exec "$convoy" train ../data --arch resnet18 --image-size 32 --batch-size 5 --epochs 3 --lr 0.02 --workers 1 \
        --checkpoint-every 1 --workspace run --log-every-step run/steps.csv "$@"
}
calmly() { # as long as it takes on a machine that does other things too
    train --processes 2 --comm-timeout 300 "$@"
}

now() { # in milliseconds
    echo $(($(date +%s%N) / 1000000))
}

# started: the ranks of $parent, as far as they are there already.
find_ranks() {
    ranks=()
    for process in $(pgrep -P "$parent"); do
        local rank
        rank=$(tr '\0' '\n' <"/proc/$process/environ" 2>/dev/null | sed -n 's/^RANK=//p')
        [ -n "$rank" ] && ranks[rank]=$process
    done
}

# Ranks started one by one, the victim with less memory than it needs: it fails somewhere between start and end.
starve() {
    local port=$((20000 + RANDOM % 10000)) others=()
    for rank in 0 1; do
        (
            export RANK=$rank WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port
            [ $rank = "$victim" ] && ulimit -v $((needed / 10 + RANDOM * needed / 40960))
            train --comm-timeout $limit
        ) 2>&1 &
        others[rank]=$!
    done
    wait "${others[0]}"
    local first=$?
    wait "${others[1]}"
    local second=$?
    [ $victim = 0 ] && return $first
    return $second
}

mkdir calm
begin=$(now)
(cd calm && calmly) >out 2>err &
parent=$!
needed=0 # KiB of address space of a rank
while kill -0 $parent 2>/dev/null; do
    for process in $(pgrep -P $parent); do
        size=$(awk '/^VmSize:/ { print $2 }' "/proc/$process/status" 2>/dev/null)
        [ "${size:-0}" -gt $needed ] && needed=$size
    done
    sleep 0.1
done
checks=$((checks + 1))
wait $parent || { fail "nothing happened, and it failed"; show; }
length=$(($(now) - begin))
failed=0
declare -A ends
for round in $(seq "$rounds"); do
    for way in kill stop starve; do
        rm -rf hurt && mkdir hurt
        victim=$((RANDOM % 2))
        wait_ms=0
        ranks=()
        set -m
        if [ $way = starve ]; then
            (cd hurt && starve) >out 2>err &
            parent=$!
        else
            (cd hurt && train --processes 2 --comm-timeout $limit) >out 2>err &
            parent=$!
            wait_ms=$((RANDOM % length))
            sleep $((wait_ms / 1000)).$(printf '%03d' $((wait_ms % 1000)))
            find_ranks
            [ $way = kill ] && number=KILL || number=STOP
            [ -n "${ranks[$victim]:-}" ] && kill -$number "${ranks[$victim]}"
        fi
        set +m
        begin=$(now)
        wait $parent
        rc=$?
        took=$(($(now) - begin))
        checks=$((checks + 1))
        what="round $round: rank $victim, $way after $wait_ms ms of $length"
        # The limit, as long again until the first call after it, what is left to do where nothing happened, and some seconds.
        [ $took -le $((2 * limit * 1000 + length + 10000)) ] || fail "$what: it took $took ms to end"
        for process in "${ranks[@]}"; do
            grep -qs '^State:[[:space:]]*[^ZX[:space:]]' "/proc/$process/status" && fail "$what: process $process is left" &&
                kill -KILL "$process"
        done
        ends[$way:$rc]=$((${ends[$way:$rc]:-0} + 1))
        case $rc in
        0) ;; # the moment was too late, or the memory enough
        1 | 71) # and says so
            failed=$((failed + 1))
            cat err >>out # of ranks that were started one by one
            grep -qE "^convoy: .*(rank $victim|memory)" out || { fail "$what: nobody names rank $victim"; show; }
            ;;
        134 | 139) # oneDNN 2.6 does not look at every allocation that fails: the other rank says who died
            [ $way = starve ] || fail "$what: exit code $rc"
            failed=$((failed + 1))
            cat err >>out
            grep -q "^convoy: .*rank $victim" out || { fail "$what: nobody names rank $victim"; show; }
            ;;
        *) fail "$what: exit code $rc"; show ;;
        esac
        resume=
        [ -e hurt/run/checkpoint.safetensors ] && resume="--resume run"
        [ -n "$resume" ] || rm -rf hurt/run
        expect 0 bash -c "$(declare -f train calmly); convoy=$convoy; cd hurt; calmly $resume" ||
            fail "$what: it cannot be resumed"
        expect_same calm/run/steps.csv hurt/run/steps.csv || fail "$what: other losses"
        expect_same calm/run/checkpoint.safetensors hurt/run/checkpoint.safetensors || fail "$what: other weights"
    done
done
for end in "${!ends[@]}"; do echo "$end: ${ends[$end]} times"; done
checks=$((checks + 1))
[ $failed -ge "$rounds" ] || fail "of $((3 * rounds)) runs only $failed failed: too few were hurt to test anything"
finish
