#!/bin/bash
# Ranks that mpirun starts, with each MPI: the bits of as many ranks over TCP and shared memory, a signal that all agree on, a killed rank
# that ends all, and a sentence where the module is missing.
. "$(dirname "$0")/support_common.sh"
. "$(dirname "$0")/support_ranks.sh"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 # containers of CI have no other user
export TMPDIR=$work # where Open MPI keeps its sockets
unset CONVOY_COMM
# Open MPI's plugins leave memory behind when they are unloaded, and a leak has no name then: only those are not looked for.
export ASAN_OPTIONS=${ASAN_OPTIONS:-}:detect_leaks=0
modules=${CONVOY_BUILD:?the build folder}
make_shapes data 3 1
narrow # what ranks say and sum is the same for any width; the modules are looked for beside the library
mkdir beside
cp "$modules/tests/narrow/libconvoy.so.0" beside
for module in "$modules"/libconvoy_mpi_*.so; do
    [ ! -e "$module" ] || cp "$module" beside
done
export LD_LIBRARY_PATH=$work/beside:$LD_LIBRARY_PATH

train() {
    exec "$@" "$convoy" train ../data --arch resnet18 --image-size 32 --batch-size 5 --lr 0.02 --workers 1 \
        --workspace run --log-every-step run/steps.csv --comm-timeout 60 $options
}

# try FOLDER OPTIONS LAUNCHER...: a training in that folder; its exit code is expected to be 0.
try() {
    mkdir -p "$1"
    options=$2
    expect 0 bash -c "$(declare -f train); convoy='$convoy' options='$options'; cd $1; train ${*:3}"
}

# start FOLDER LAUNCHER...: one without an end, in the background ($parent), until it has made a step; ${ranks[@]}.
start() {
    mkdir "$1"
    options='--epochs 1000'
    set -m
    (cd "$1" && train "${@:2}") >out 2>err &
    parent=$!
    set +m
    await_step "$1"
    ranks=()
    for process in $(pgrep -x convoy); do
        [ "$(readlink "/proc/$process/cwd")" = "$work/$1" ] || continue
        rank=$(tr '\0' '\n' <"/proc/$process/environ" | sed -n 's/^\(OMPI_COMM_WORLD_RANK\|PMI_RANK\)=//p')
        [ -n "$rank" ] && ranks[rank]=$process
    done
    expect_two "$1"
}

CONVOY_COMM=tcp try tcp3 '--epochs 1 --processes 3'
expect_text err 'over tcp;'
CONVOY_COMM=tcp try tcp2 '--epochs 1000 --run-epochs 1 --processes 2'

try_mpi() { # NAME TITLE MPIRUN...
    local name=$1 title=$2 patient=()
    shift 2
    [ $name = mpich ] || patient=(--mca odls_base_sigkill_timeout 5)
    # ---- the bits of TCP ----
    try $name-3 '--epochs 1' "$@" -n 3
    expect_text err "this is rank 0 of 3 on 1 host, over MPI \($title [0-9.]+\)"
    expect_same tcp3/run/steps.csv $name-3/run/steps.csv
    expect_same tcp3/run/checkpoint.safetensors $name-3/run/checkpoint.safetensors
    # ---- a signal to one rank, and on from there ----
    start $name-2 "$@" -n 2
    kill -TERM "${ranks[1]}"
    ended 60
    [ $rc = 75 ] || { fail "SIGTERM to rank 1 ended with $rc instead of 75"; show; }
    [ "$(grep -c 'stopped by a signal' err)" = 1 ] || { fail "not one rank says that the run was stopped"; show; }
    local lines=$(wc -l <$name-2/run/steps.csv)
    [ "$lines" -le 4 ] || lines=4 # what tcp2 has
    expect_same <(head -n $lines tcp2/run/steps.csv) <(head -n $lines $name-2/run/steps.csv)
    cp -r $name-2 $name-2-memory
    try $name-2 '--resume run --run-epochs 1' "$@" -n 2
    try $name-2-memory '--resume run --run-epochs 1 --processes 2'
    expect_text err 'over shared memory;'
    expect_same $name-2-memory/run/steps.csv $name-2/run/steps.csv
    expect_same $name-2-memory/run/checkpoint.safetensors $name-2/run/checkpoint.safetensors
    # ---- a rank that is killed; mpirun sees it first, and MPICH's leaves nobody the time to speak; Open MPI's a second,
    # which on a busy machine is too short: here it is five, of which it takes twice as many ----
    start $name-killed "$@" "${patient[@]}" -n 2
    kill -KILL "${ranks[1]}"
    ended 40
    [ $rc != 0 ] || { fail "a killed rank ended the run with 0"; show; }
    [ $name = mpich ] || expect_text err 'rank 1 on host .* ended without a word'
    cat out err | grep -qiE '(signal|CODE:) *9' || { fail "nobody says that a process was killed"; show; }
    # ---- a rank that never comes ----
    local begin=$SECONDS
    run "$@" -n 1 "$convoy" train data --workspace never --comm-timeout 3 : -n 1 sleep 100
    [ $rc != 0 ] && [ $((SECONDS - begin)) -le 60 ] || { fail "waiting for a rank that never comes ended with $rc after $((SECONDS - begin)) s"; show; }
    expect_text err "^convoy: the ranks cannot meet over $title .*: it has not started within 3 s"
    # ---- without the module ----
    expect 0 "$@" -n 2 "$bare" train data --resume $name-2/run --evaluate
    expect_text err "this build has no module for $title .*: the ranks are connected by TCP"
    expect_text err 'this is rank 0 of 2 on 1 host, over shared memory;'
    run env CONVOY_COMM=mpi "$@" -n 2 "$bare" train data
    [ $rc = 69 ] || { fail "without the module that is asked for it ended with $rc instead of 69"; show; }
    expect_text err "^convoy: this build has no module for $title"
}

# As it is installed, without the modules.
cmake --install "$modules" --prefix "$work/bare" >install.log || { cat install.log >&2 && fail 'the build cannot be installed'; }
find bare -name 'libconvoy_mpi_*.so' -delete
bare=$work/bare/narrow
printf '#!/bin/sh\nLD_LIBRARY_PATH=%s exec %s "$@"\n' "$modules/tests/narrow" "$work/bare/bin/convoy" >"$bare"
chmod +x "$bare"
for mpi in openmpi mpich; do
    if ! command -v mpirun.$mpi >/dev/null || [ ! -e "$modules/libconvoy_mpi_$mpi.so" ]; then
        skip_part "mpirun.$mpi or the module for it is missing"
        continue
    fi
    [ $mpi = openmpi ] && try_mpi openmpi 'Open MPI' mpirun.openmpi --oversubscribe || try_mpi mpich MPICH mpirun.mpich
done

# ---- ranks that seem to be on two hosts: they meet at an address, not on the loopback ----
if ! unshare -u true 2>/dev/null; then
    skip_part_unavoidable 'hosts cannot be renamed'
elif [ -e "$modules/libconvoy_mpi_mpich.so" ] && command -v mpirun.mpich >/dev/null; then
    [ -n "$(hostname -I)" ] || export MASTER_ADDR=127.0.0.1
    expect 0 mpirun.mpich -n 2 unshare -u sh -c 'hostname "host$PMI_RANK.invalid"; exec "$0" "$@"' "$convoy" train data \
        --resume mpich-2/run --evaluate
    expect_text err 'this is rank 0 of 2 on 2 hosts, over MPI'
fi

expect_sentence 2 'CONVOY_COMM is .*pigeon' env CONVOY_COMM=pigeon "$convoy" train data
expect_sentence 2 'no MPI|not an MPI' env CONVOY_COMM=mpi "$convoy" train data
expect_sentence 2 'OMPI_COMM_WORLD_SIZE' env OMPI_COMM_WORLD_RANK=1 "$convoy" train data
finish
