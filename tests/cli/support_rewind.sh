# Trainings that diverge and go back, for rewind.sh and long_rewind.sh: a rate that rises over both epochs, far beyond what
# goes well.

begin_train() { # NAME OPTIONS...: in the folder NAME, so that all runs know the same paths; in a subshell, which it replaces
    local name=$1
    shift
    rm -rf "${work:?}/$name"
    mkdir -p "$work/$name"
    cd "$work/$name" && exec "$convoy" train ../data --arch resnet18 --image-size 32 --batch-size 4 --epochs 2 --lr ${rate:-0.5} \
        --lr-unit step --warmup 2 --workers 1 --workspace run --log-every-step run/steps.csv "$@"
}

train() (begin_train "$@")

resume_train() { # NAME OPTIONS...
    local name=$1
    shift
    (cd "$work/$name" && exec "$convoy" train ../data --resume run "$@")
}

rewinds() { grep -c 'goes back to its state' "$1"; }

expect_rewinds() { # FILE: some
    checks=$((checks + 1))
    [ "$(rewinds "$1")" -ge 1 ] || { fail "nothing went back"; show; }
}

same_as() { # CALM OTHER
    expect_same "$1/run/steps.csv" "$2/run/steps.csv"
    expect_same "$1/run/checkpoint.safetensors" "$2/run/checkpoint.safetensors"
}

# stop_and_resume NAME LINES OPTIONS...: SIGTERM as soon as steps.csv has so many lines, then --resume; $stops counts.
stops=0
stop_and_resume() {
    local name=$1 wanted=$2 lines=0
    shift 2
    rm -rf "${work:?}/$name" # no lines of an earlier run
    (begin_train "$name" "$@") >"$work/out" 2>"$work/err" &
    local process=$!
    while [ "$lines" -lt "$wanted" ] && kill -0 $process 2>/dev/null; do
        sleep 0.02
        lines=$(wc -l 2>/dev/null <"$name/run/steps.csv" || echo 0)
    done
    kill -TERM $process 2>/dev/null
    wait $process
    rc=$?
    checks=$((checks + 1))
    [ $rc = 75 ] || [ $rc = 0 ] || { fail "stopped: $rc"; show; }
    [ $rc = 0 ] && return
    stops=$((stops + 1))
    expect 0 resume_train "$name" "${again[@]}"
}
again=() # options that a resumed run is given again
