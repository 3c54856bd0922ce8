# Runs of two ranks in the background: $parent is the process that started them, ${ranks[@]} are theirs.

# await_step FOLDER: until the run there has made a step, or has ended.
await_step() {
    for _ in $(seq 1200); do
        [ -e "$1/run/steps.csv" ] && [ "$(wc -l <"$1/run/steps.csv")" -ge 2 ] && break
        kill -0 $parent 2>/dev/null || break
        sleep 0.05
    done
}

expect_two() {
    [ "${#ranks[@]}" = 2 ] || { fail "there are ${#ranks[@]} ranks in $1"; show; }
}

# ended SECONDS: the parent's exit code in $rc; it and its ranks must be gone by then.
ended() {
    local begin=$SECONDS
    wait $parent
    rc=$?
    checks=$((checks + 1))
    [ $((SECONDS - begin)) -le "$1" ] || fail "it took $((SECONDS - begin)) s to end"
    for process in "${ranks[@]}"; do # a dead one may wait for somebody to ask for its exit code
        grep -qs '^State:[[:space:]]*[^ZX[:space:]]' "/proc/$process/status" && fail "process $process is still there"
    done
    ranks=()
}
