#!/bin/bash
# Kernels that are chosen by timing: timed once and kept, carried by the checkpoint against whatever the kept file says.
. "$(dirname "$0")/support_common.sh"
narrow # the same for any width
export CONVOY_KERNELS=once CONVOY_CACHE_DIR=$work/cache OMP_NUM_THREADS=2
make_shapes data 4 1

train() ( # FOLDER OPTION...: in a folder of its own, so that all runs know the same paths
    cd "$work/$1" || exit 1
    shift
    "$convoy" train ../data --arch resnet18 --image-size 32 --batch-size 10 --epochs 2 --lr 0.05 --workspace run "$@"
)

mkdir calm again other
expect 0 train calm
kept=$(ls cache/kernels-*.txt 2>/dev/null)
if [ -z "$kept" ]; then # without AVX-512, or with oneDNN 3, there may be nothing to choose from
    skipped="this machine has no kernels that compete"
    if without_bf16; then skip_part_unavoidable "$skipped"; else skip_part "$skipped"; fi
    finish
fi
expect_text err "timing kernels on this processor, once: the result is kept in $work/cache/kernels-"
expect_text $kept '^# convoy kernels 1$'
expect_text $kept '^conv2d'

# The second time nothing is timed, and the run is the same to the last bit.
cp $kept kept
expect 0 train again --run-epochs 1
checks=$((checks + 1))
grep -q 'timing kernels' err && fail "kernels are timed again"
expect_same kept $kept

sanitized && finish # choices of other kernels are those of test_autotune there

# Now the file says the contrary for every operation that had a choice. A new run follows it ...
awk -F'\t' -v OFS='\t' '/^#/ { print; next }
    { for (i = 3; i <= NF; i++) { split($i, c, "="); if (c[1] != $2 && c[2] != "-") { $2 = c[1]; break } } print }' kept >$kept
checks=$((checks + 1))
cmp -s kept $kept && fail "no choice was turned"
expect 0 train other
checks=$((checks + 1))
cmp -s calm/run/checkpoint.safetensors other/run/checkpoint.safetensors &&
    fail "the kept choices make no difference: nothing is tested here"
# ... and the run that continues follows its checkpoint.
expect 0 train again --resume run
expect_same calm/run/checkpoint.safetensors again/run/checkpoint.safetensors
checks=$((checks + 1))
grep -q 'warning' err && fail "the resumed run warns"
# So it does without the file, and in the order of the table.
for how in timed once first; do
    rm -rf again cache
    mkdir again
    mkdir cache && cp kept $kept
    expect 0 train again --run-epochs 1
    rm -rf cache
    CONVOY_KERNELS=$how expect 0 train again --resume run
    expect_same calm/run/checkpoint.safetensors again/run/checkpoint.safetensors
    checks=$((checks + 1))
    compgen -G "cache/kernels-*" >/dev/null && fail "the resumed run times kernels"
done

# Of several processes rank 0 alone times and keeps: the others take its choices, with other numbers of threads too.
rank() ( # RANK THREADS: with a cache of its own
    export RANK=$1 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port OMP_NUM_THREADS=$2 CONVOY_CACHE_DIR=$work/cache$1
    train again --workspace ranks --batch-size 5 --epochs 1
)
port=$((20000 + RANDOM % 10000))
rank 1 1 >out1 2>err1 &
expect 0 rank 0 2
wait $!
checks=$((checks + 1))
[ -e cache0 ] && [ ! -e cache1 ] || fail "the kernels are not timed by rank 0 alone"

# A file that makes no sense is replaced, with a warning.
mkdir -p cache && echo nonsense >$kept
expect 0 "$convoy" bench train --arch resnet18 --image-size 32 --batch-size 10 --iterations 1
expect_text err 'warning: .*is damaged: the kernels are timed again'
expect_text $kept '^# convoy kernels 1$'

# Choices of people.
CONVOY_KERNELS=fastest expect_sentence 2 'CONVOY_KERNELS is timed, once or first' "$convoy" info resnet18
CONVOY_KERNEL=conv2d=nonsense expect_sentence 2 'CONVOY_KERNEL' "$convoy" info resnet18
CONVOY_KERNEL=conv2d_bwd_weights=cpu.conv2d_bwd_weights expect 0 "$convoy" info resnet18 --plan --runs 0 --mode train --format json
expect_text out '"reason": "CONVOY_KERNEL"'
checks=$((checks + 1))
grep -q '"kernel": "cpu.conv2d_winograd_bwd_weights"' out && fail "CONVOY_KERNEL is not obeyed"
# The check device leaves the choice to the one it checks.
CONVOY_KERNEL=conv2d=cpu.conv2d expect 0 timeout 60 "$convoy" bench infer --arch resnet18 --image-size 32 --batch-size 1 \
    --iterations 1 --device check:cpu
finish
