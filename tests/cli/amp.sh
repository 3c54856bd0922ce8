#!/bin/bash
# Mixed precision from the command line: stopped and resumed it gives the same bytes; --amp and --precision agree, or the
# higher word counts.
. "$(dirname "$0")/support_common.sh"
make_shapes data 2 1
train() { "$convoy" -q train data --arch resnet18 --image-size 32 --batch-size 10 --epochs 2 --lr 0.05 --warmup 0 "$@"; }

if without_bf16; then
    expect_sentence 69 'bf16 needs a CPU with AVX-512' train --amp --workspace refused
    skip_part_unavoidable "a CPU without AVX-512"
    finish
fi
expect 0 train --amp --workspace calm
expect 0 train --amp --workspace halves --run-epochs 1
cp halves/checkpoint.safetensors half.safetensors
expect 0 "$convoy" -q train --resume halves
[ ! -s err ] || fail "resuming with --amp says something"
expect_same calm/checkpoint.safetensors halves/checkpoint.safetensors
sanitized && finish # what follows runs the same code with other options
expect 0 train --precision bf16 --workspace precision
expect_same calm/metrics.csv precision/metrics.csv

expect_sentence 2 '--amp and --precision fp32 exclude' train --amp --precision fp32 --workspace refused
expect_sentence 2 'bf16 needs --device cpu' train --amp --device ref --workspace refused
printf 'amp = true\n' >narrow.recipe
expect 0 train --recipe narrow.recipe --workspace recipe
expect_same calm/metrics.csv recipe/metrics.csv
expect 0 train --workspace wide
# One line says which precision is faster, unless one was asked for by name. Its number follows the machine.
if "$convoy" info | grep -qE '^CPU .*(avx512_bf16|amx_bf16)'; then
    expect 0 "$convoy" train data --arch resnet18 --image-size 32 --batch-size 10 --run-epochs 1 --workspace advised
    expect_text err 'computes [0-9.]+ times as fast in bf16 as in fp32 \(.*\): --amp asks for it'
    # The rates are measured once for a processor: what is kept is believed, what cannot be is measured again.
    shared=$CONVOY_CACHE_DIR
    export CONVOY_CACHE_DIR=$work/cache
    train_again() {
        rm -rf again
        expect 0 "$convoy" train data --arch resnet18 --image-size 32 --batch-size 10 --run-epochs 1 --workspace again
    }
    train_again
    for row in '7250 7\.2' 'nonsense [0-9.]+'; do
        read -r kept said <<<"$row"
        sed -i "s/threads\t.*/threads\t$kept/" cache/processor-*.txt
        train_again
        expect_text err "computes $said times as fast in bf16"
    done
    # What other programs ran beside is measured by three runs, and then believed.
    sed -i "s/threads\t.*/threads\t7250 busy=3/" cache/processor-*.txt
    train_again
    expect_text err 'computes 7\.2 times as fast in bf16'
    sed -i "s/threads\t.*/threads\t7250 busy=2/" cache/processor-*.txt
    train_again
    checks=$((checks + 1))
    grep -q 'computes 7\.2 times' err && fail "what was measured beside other programs is not measured again"
    expect_text cache/processor-*.txt 'threads.[1-9][0-9]{2,4}( busy=[1-3])?$'
    export CONVOY_CACHE_DIR=$shared
    expect 0 "$convoy" train data --arch resnet18 --image-size 32 --batch-size 10 --run-epochs 1 --precision fp32 \
        --workspace asked
    checks=$((checks + 1))
    grep -q 'times as fast' err && fail "the other precision is praised where fp32 was asked for"
    # A long training by the automatic recipe takes it by itself; a short one, and one that was told, does not.
    for row in '100000 automatic' '2 default' '100000 flag --precision=fp32' '100000 default --amp=false'; do
        read -r epochs from option <<<"$row"
        expect 0 "$convoy" train data --arch resnet50 --image-size 224 --epochs "$epochs" $option --dry-run
        expect_text out "^precision .* $from\$"
    done
    expect 0 "$convoy" train data --arch resnet50 --image-size 224 --epochs 100000 --dry-run
    expect_text out '^precision +bf16'
fi
expect 0 train --recipe narrow.recipe --precision fp32 --workspace flag
expect_same wide/metrics.csv flag/metrics.csv
checks=$((checks + 1))
cmp -s calm/metrics.csv wide/metrics.csv && fail "--amp changes nothing"
for flag in "--precision fp32" "--amp=false"; do
    mkdir -p back && cp half.safetensors back/checkpoint.safetensors
    # shellcheck disable=SC2086
    expect 0 "$convoy" train data --resume back/checkpoint.safetensors $flag
    expect_text err 'was computed with precision "bf16", and now it is "fp32"'
    rm -r back
done
# Lesser instruction sets: AVX-512 alone does the same in software, others refuse. The losses of two steps agree to 1 %:
# single sums differ by their roundings, which a small rate does not magnify (at 0.05 the second loss is anywhere within
# 5 %, with any two orders of sums).
small() {
    expect 0 env "$1" "$convoy" -q train data --arch resnet18 --image-size 32 --batch-size 10 --epochs 1 --lr 0.002 \
        --warmup 0 --workspace "${@:2}"
}
small A=1 small_wide
small A=1 small_calm --amp
small CONVOY_CPU_ISA=avx512 small_software --amp
expect_text err 'bf16 is slower than fp32 on this processor .avx512., which has no instructions for it'
first_loss() {
    awk -F, 'NR == 1 { for (i = 1; i <= NF; i++) if ($i == "train.loss") at = i } NR == 2 { print $at }' "$1/metrics.csv"
}
checks=$((checks + 1))
printf '%s %s %s\n' "$(first_loss small_wide)" "$(first_loss small_calm)" "$(first_loss small_software)" | awk '
    { for (i = 2; i <= 3; i++) if (!($1 > 0 && $i > 0.99 * $1 && $i < 1.01 * $1)) bad = 1 } END { exit bad || NF != 3 }' ||
    fail "the first losses of fp32 and bf16 differ: $(first_loss small_wide) $(first_loss small_calm)" \
        "$(first_loss small_software)"
for isa in avx2 base; do
    expect_sentence 69 'bf16 needs a CPU with AVX-512' env CONVOY_CPU_ISA=$isa "$convoy" train data --amp --workspace refused
done

[ ! -e refused ] || fail "a run directory was made"
finish
