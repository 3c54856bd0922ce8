#!/bin/bash
# The layout of images with several ranks: where it is a question, rank 0 answers it for all, however they were started
# and whatever the others have kept. Ranks that are told different ones are refused.
. "$(dirname "$0")/support_common.sh"
export CONVOY_KERNELS=once CONVOY_CPU_ISA=avx512_bf16 # with AMX it is no question
unset CONVOY_COMM
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 TMPDIR=$work
"$convoy" info resnet18 --plan --image-size 64 --precision bf16 --runs 0 >plan 2>/dev/null
grep -q 'on cpu .*avx512_bf16' plan || {
    echo "skipped: this processor has no question: $(grep '^plan images' plan)"
    exit 77
}
make_shapes data 2 1

train() { # OPTION...: in a folder beside the data
    "$convoy" train ../data --arch resnet18 --image-size 64 --batch-size 5 --epochs 2 --lr 0.02 --precision bf16 --workers 1 \
        --workspace run --log-every-step run/steps.csv "$@"
}
rank() ( # RANK [NAME=VALUE...]: with a cache of its own
    export RANK=$1 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port CONVOY_CACHE_DIR=$work/cache$1
    shift
    [ $# = 0 ] || export "$@"
    train
)
# two FOLDER [NAME=VALUE for rank 1...]: two ranks; their exit codes in $rc and $rc1, rank 1's messages in err1.
two() {
    mkdir "$1"
    port=$((20000 + RANDOM % 10000))
    (cd "$1" && shift && rank 1 "$@") >out1 2>err1 &
    local other=$!
    run eval "cd '$1' && rank 0"
    cd "$work" || exit 1
    wait $other
    rc1=$?
    checks=$((checks + 1))
}
both() { # FOLDER [NAME=VALUE for rank 1...]: both ranks end well
    two "$@"
    [ "$rc $rc1" = '0 0' ] || {
        fail "the ranks of $1 ended with $rc and $rc1"
        show
        cat err1 >&2
        finish
    }
}
turn() { # RANK LAYOUT: what the rank's file says of all plans
    mkdir -p "cache$1"
    awk -F'\t' -v OFS='\t' -v to="$2" '/^images/ { $2 = to } { print }' answers >"cache$1/$file"
}

# Rank 0 alone times.
both timed
expect_text err 'timed the layouts of images'
checks=$((checks + 1))
[ -e cache1 ] && fail "rank 1 has timed something"
file=$(basename cache0/kernels-*.txt)
cp "cache0/$file" answers

# Whatever rank 1 has kept, it follows rank 0.
turn 0 nhwc
turn 1 nhwc
both nhwc
turn 1 blocked
both followed
expect_same nhwc/run/checkpoint.safetensors followed/run/checkpoint.safetensors
turn 0 blocked
both blocked
checks=$((checks + 1))
cmp -s nhwc/run/checkpoint.safetensors blocked/run/checkpoint.safetensors && fail "the layouts make no difference"

# So do ranks that the program or mpirun starts.
cp cache0/$file cache1/$file
turn 0 nhwc
export CONVOY_CACHE_DIR=$work/cache0
mkdir started && cd started || exit 1
expect 0 train --processes 2
cd "$work" || exit 1
expect_same nhwc/run/steps.csv started/run/steps.csv
if command -v mpirun.openmpi >/dev/null && [ -e "${CONVOY_BUILD:-/nonexistent}/libconvoy_mpi_openmpi.so" ]; then
    mkdir mpi && cd mpi || exit 1
    export -f train
    export convoy
    ASAN_OPTIONS=${ASAN_OPTIONS:-}:detect_leaks=0 expect 0 mpirun.openmpi --oversubscribe -n 2 bash -c train
    cd "$work" || exit 1
    expect_same nhwc/run/steps.csv mpi/run/steps.csv
else
    skip_part "mpirun.openmpi or the module for it is missing"
fi
unset CONVOY_CACHE_DIR

# Processors that do not have the same instructions do not train together,
CONVOY_CPU_ISA=avx512 two lesser CONVOY_CPU_ISA=avx512_bf16
checks=$((checks + 1))
[ "$rc $rc1" = '2 2' ] || fail "ranks with two instruction sets: $rc and $rc1"
# and a layout that is forced must be the same everywhere.
for layout in blocked nhwc; do
    two refused$layout CONVOY_CPU_LAYOUT=$layout
    checks=$((checks + 1))
    [ "$rc $rc1" = '2 2' ] || fail "$layout, which one rank alone is told: $rc and $rc1"
done
finish
