# Sourced after support_common.sh: trainings whose ranks share the batches of one.

# share NAME RANKS BATCH OPTIONS...: the losses of every step go to NAME.csv.
share() {
    local name=$1 ranks=$2 batch=$3
    shift 3
    expect 0 "$convoy" -q train --processes "$ranks" --batch-size "$batch" --momentum 0 --training-only --workers 1 \
        --no-checkpoints --workspace "$name" --log-every-step "$name.csv" "$@"
}

# apart ONE OTHER STEPS: the largest relative difference of the losses of the first STEPS steps.
apart() {
    paste -d, "$1.csv" "$2.csv" | awk -F, -v steps="$3" '
        NR > 1 && NR <= steps + 1 && $3 ~ /^[0-9.e+-]+$/ && $7 ~ /^[0-9.e+-]+$/ {
            d = ($3 - $7) / $3; if (d < 0) d = -d; if (!(d <= most)) most = d; n++
        }
        END { print n == steps ? most + 0 : "missing" }'
}

# near ONE OTHER STEPS LIMIT
near() {
    local found
    found=$(apart "$1" "$2" "$3")
    checks=$((checks + 1))
    echo "$1 and $2: $found apart in $3 steps"
    awk -v found="$found" -v limit="$4" 'BEGIN { exit !(found != "missing" && found + 0 <= limit) }' ||
        fail "the losses of $1 and $2 are $found apart in $3 steps, more than $4"
}

# far ONE OTHER STEPS LEAST: what is tested must be there to be tested.
far() {
    local found
    found=$(apart "$1" "$2" "$3")
    checks=$((checks + 1))
    awk -v found="$found" -v least="$4" 'BEGIN { exit !(found != "missing" && found + 0 >= least) }' ||
        fail "the losses of $1 and $2 are $found apart in $3 steps: nothing is tested"
}
