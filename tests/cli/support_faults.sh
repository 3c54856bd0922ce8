# Sourced by faults.sh and long_faults.sh: calls of the C library that fail, one at a time, in all that the program does with
# files, threads and sockets. Each time: a documented exit code, a sentence where it is not 0, no part of a file left, and a
# run that continues from its checkpoint to the same bits.
. "$(dirname "$0")/support_common.sh"
shim=$CONVOY_BUILD/tests/libfault_shim.so
[ -e "$shim" ] || skip "the shim was not built"
injected=0
declare -A outcomes
export CONVOY_CACHE_DIR=$work/cache
# The runtime of the sanitizers is loaded after the shim.
sanitized && export ASAN_OPTIONS=${ASAN_OPTIONS:-}:verify_asan_link_order=0
narrow
shopt -s nullglob

make_shapes data 2 1
expect 0 tiny_train data --epochs 2 --run-epochs 1 --workspace begun
cp -r begun whole
expect 0 "$convoy" -q train data --resume whole --epochs 2

make_detector() { # and an image, for "detect"
    expect 0 "$convoy" -q dataset shapes boxes --boxes --train-images 2 --val-images 1
    cp "$(find boxes -name '*.jpg' | head -n 1)" image.jpg
    expect 0 "$convoy" -q train boxes --arch ssd320 --image-size 64 --batch-size 2 --epochs 1 --lr 0.001 --workers 1 \
        --training-only --workspace detector
}

# The commands; each writes below try/. ranks: the call fails in each process; rank0, rank1: in that rank alone.
scenario() {
    case $1 in
    train) command=(tiny_train data --epochs 1 --workspace try/run) ;;
    resume) command=("$convoy" -q train data --resume try/run --epochs 2) ;;
    convert) command=("$convoy" -q convert begun/checkpoint.safetensors try/net.onnx) ;;
    evaluate) command=("$convoy" -q evaluate data --weights begun/checkpoint.safetensors) ;;
    pack) command=("$convoy" -q dataset pack data/train try/set.pack) ;;
    tfrecord) command=("$convoy" -q dataset tfrecord data try/records) ;;
    quantize) command=("$convoy" -q quantize begun/checkpoint.safetensors try/q.safetensors --data data --batch-size 10 --images 10 --max-drop 100) ;;
    detect) command=("$convoy" -q detect image.jpg --weights detector/checkpoint.safetensors) ;;
    ranks | rank[01]) command=(tiny_train data --batch-size 5 --epochs 1 --processes 2 --comm-timeout 20 --workspace try/run) ;;
    esac
    rm -rf try
    mkdir try
    [ "$1" != resume ] || cp -r begun try/run
}

# with_fault SCENARIO KIND N: the command with that call failing.
with_fault() {
    (
        export CONVOY_FAULT=$2 CONVOY_FAULT_AT=$3 CONVOY_FAULT_COUNT=$work/count
        [[ $1 != rank[01] ]] || export CONVOY_FAULT_RANK=${1#rank}
        [ "${command[0]}" = tiny_train ] && command=("$convoy" -q train --arch resnet18 --image-size 32 --batch-size 10 --lr 0.02 --workers 2 "${command[@]:1}")
        exec timeout -k 5 120 env LD_PRELOAD="$shim" "${command[@]}"
    ) >out 2>err
    rc=$?
}

# check_fault SCENARIO KIND N
check_fault() {
    local what="$1, call $3 of $2"
    scenario "$1"
    with_fault "$@"
    injected=$((injected + 1))
    checks=$((checks + 1))
    outcomes[$2:$rc]=$((${outcomes[$2:$rc]:-0} + 1))
    case $rc in
    0) ;;
    1 | 2 | 65 | 66 | 69 | 71 | 73 | 74)
        [[ $'\n'$(<err) == *$'\nconvoy: '* ]] || { fail "$what: no sentence"; show; }
        ;;
    *) fail "$what: ended with $rc"; show ;;
    esac
    [[ $(<err) != *':  '* ]] || { fail "$what: a name is missing in the sentence"; show; }
    if [[ $2 != socket && $(<err) == *"without a word"* ]]; then # with its connection it can still say why
        fail "$what: a rank ended and did not say why"
        show
    fi
    case $2 in
    short | interrupt) [ $rc = 0 ] || { fail "$what must change nothing, and it ended with $rc"; show; } ;;
    esac
    local left=(try/*.tmp.* try/*/*.tmp.*)
    [ ${#left[@]} = 0 ] || fail "$what: a part of a file was left: ${left[0]}"
    if [ "$1" = resume ]; then # whatever happened: the run goes on to the same bits
        if ! "$convoy" -q train data --resume try/run --epochs 2 >out 2>err; then
            fail "$what: the run cannot be resumed"
            show
        fi
        cmp -s try/run/checkpoint.safetensors whole/checkpoint.safetensors || fail "$what: other bits after it was resumed"
    fi
}

# sweep SCENARIO KIND SAMPLES: every call, or that many of them, evenly.
sweep() {
    local count step first
    rm -f count
    scenario "$1"
    with_fault "$1" "$2" 0
    checks=$((checks + 1))
    [ $rc = 0 ] || { fail "$1 fails with the shim and no fault"; show; return; }
    count=$(sort -n count | tail -n 1)
    step=$(((count + $3 - 1) / $3))
    [ "$step" -ge 1 ] || return 0
    first=$((1 + RANDOM % step))
    for ((call = first; call <= count; call += step)); do
        check_fault "$1" "$2" $call
    done
    echo "$1: $2: $count calls, every ${step}th from $first failed"
}

# record: a resumed run writes its checkpoints, and the order of its fsyncs and renames is recorded.
record() {
    rm -rf recorded try
    mkdir recorded try
    cp -r begun try/run
    expect 0 env CONVOY_FAULT_RECORD="$work/recorded" LD_PRELOAD="$shim" "$convoy" -q train data --resume try/run --epochs 2
}

# What is renamed is durable before, and the folder after: else a loss of power leaves an empty file, or an old state for
# which a sentence has promised a new one. Prints the names that are wrong.
check_order() {
    awk -F '\t' '
        $1 == "sync" { durable[$2] = 1 }
        $1 == "rename" {
            if (!($2 in durable)) print $3 " was renamed before its bytes were durable"
            folder = $3
            sub(/\/[^\/]*$/, "", folder)
            pending[folder] = $3
        }
        $1 == "folder" { delete pending[$2] }
        END { for (f in pending) print pending[f] " is not durable in its folder" }' recorded/log
}

# lose_power N folder|names: the run directory as a loss of power after line N may leave it, in lost/run. "names": all
# renames are durable; "folder": those alone after which the folder was synchronised. A file that was synchronised and not
# yet renamed is there in half, as a temporary file.
lose_power() {
    local number=$1 variant=$2 line=0 action from to
    declare -A bytes=() waiting=()
    rm -rf lost
    mkdir lost
    cp -r begun lost/run
    while IFS=$'\t' read -r action from to; do
        line=$((line + 1))
        [ $line -le "$number" ] || break
        case $action in
        sync)
            bytes[$from]=$to
            head -c $(($(stat -c %s "recorded/$to") / 2)) "recorded/$to" >"lost/run/$(basename "$from")"
            ;;
        rename)
            rm -f "lost/run/$(basename "$from")"
            waiting[$to]=${bytes[$from]:-}
            ;;
        esac
        if [ "$action" = folder ] || [ "$variant" = names ]; then
            for to in "${!waiting[@]}"; do
                if [ -n "${waiting[$to]}" ]; then
                    cp "recorded/${waiting[$to]}" "lost/run/$(basename "$to")"
                else
                    : >"lost/run/$(basename "$to")" # never synchronised: its bytes are gone
                fi
            done
            waiting=()
        fi
    done <recorded/log
}

# check_loss N VARIANT: that state can be resumed, and ends with the bits of a run that nothing happened to.
check_loss() {
    lose_power "$@"
    checks=$((checks + 1))
    losses=$((${losses:-0} + 1))
    if ! "$convoy" -q train data --resume lost/run --epochs 2 >out 2>err; then
        fail "power lost after line $1 ($2): the run cannot be resumed"
        show
    fi
    cmp -s lost/run/checkpoint.safetensors whole/checkpoint.safetensors ||
        fail "power lost after line $1 ($2): other bits after it was resumed"
}

summary() {
    echo "$injected faults:"
    for key in "${!outcomes[@]}"; do
        echo "  ${key%:*}: exit code ${key#*:}: ${outcomes[$key]}"
    done | LC_ALL=C sort
}
