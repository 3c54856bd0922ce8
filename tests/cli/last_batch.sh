#!/bin/bash
# --last-batch partial: the images that do not fill a batch are a step of their own, in every epoch, with ranks and after a stop.
. "$(dirname "$0")/support_common.sh"
narrow
make_shapes data 1 1 # ten images each

train() { # FOLDER OPTIONS: from the folder above, so that all know the same paths
    ${exec:-} "$convoy" -q train data --arch resnet18 --image-size 64 --lr 0.002 --epochs 2 --seed 1 --workers 2 --rewinds 0 --precise-bn 0 \
        --log-every-step "$PWD/$1/steps.csv" --workspace "$1" "${@:2}"
}
short() { train "$@" --batch-size 4 --last-batch partial; }
steps() { tail -n +2 "$1/steps.csv" | cut -d , -f "$2"; }

expect 0 short calm
checks=$((checks + 2))
[ "$(steps calm 1 | paste -sd ' ')" = '0 0 0 1 1 1' ] || fail "not three steps an epoch: $(cat calm/steps.csv)"
expect 0 train dropped --batch-size 4
[ "$(steps dropped 1 | paste -sd ' ')" = '0 0 1 1' ] || fail "not two steps an epoch: $(cat dropped/steps.csv)"
expect_same <(head -n 3 calm/steps.csv | cut -d , -f 1-3) <(head -n 3 dropped/steps.csv | cut -d , -f 1-3)

# Validation sees what it saw.
expect 0 "$convoy" -q evaluate data --weights calm/checkpoint.safetensors --format json
expect_text out '"images": *10'

# After the end of an epoch, and after a kill anywhere in one, the bits are those of the run that went through.
expect 0 short halves --run-epochs 1
expect 0 "$convoy" -q train --resume halves
expect_same calm/steps.csv halves/steps.csv
expect_same calm/checkpoint.safetensors halves/checkpoint.safetensors
exec=exec short killed --checkpoint-every 1 & # which takes the place of the shell, so that the kill meets it
process=$!
for _ in $(seq 600); do
    [ -e killed/steps.csv ] && [ "$(wc -l <killed/steps.csv)" -gt 2 ] && break
    kill -0 $process 2>/dev/null || break
    sleep 0.05
done
kill -9 $process 2>/dev/null
wait $process 2>/dev/null
[ -e killed/checkpoint.safetensors ] || fail "the run was killed before it had a checkpoint"
expect 0 "$convoy" -q train data --resume killed
expect_same calm/steps.csv killed/steps.csv

# It is the checkpoint's.
expect_sentence 2 'last-batch' "$convoy" -q train --resume halves --epochs 4 --last-batch drop

# Two ranks, batches of 3: of the five images of each, a step of six images and one of four, as in one process with batches
# of 6. Statistics over both ranks; the rest is rounding.
expect 0 train one --batch-size 6 --last-batch partial
expect 0 train two --batch-size 3 --last-batch partial --processes 2 --sync-bn
checks=$((checks + 1))
paste -d , <(steps one 3) <(steps two 3) | awk -F , '
    { rows++; if (($1 - $2)^2 > (1e-3 * $1)^2) wrong = 1 }
    END { exit rows != 4 || wrong }' || fail "the losses differ: $(cat one/steps.csv two/steps.csv)"

expect_sentence 2 'last-batch partial and --optimizer-batch-size exclude' train refused --batch-size 4 --last-batch partial --optimizer-batch-size 8
expect_sentence 2 'not for made-up ones' "$convoy" train --data-backend synthetic --image-size 32 --num-classes 5 --batch-size 4 --last-batch partial
expect_sentence 2 'option --last-batch is drop or partial, not "all"' train refused --batch-size 4 --last-batch all
finish
