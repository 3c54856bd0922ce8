#!/bin/bash
# Mixup, class weights and the loss that validation reports, from the command line: they change the training, not its
# exactness; a run that continues needs the file of the weights no more; what cannot be is refused in one sentence.
. "$(dirname "$0")/support_common.sh"
narrow
make_shapes data 2 1
train() { tiny_train data --epochs 1 --label-smoothing 0.1 "$@"; }
column() { # column NAME RUN: of metrics.csv, the rows side by side
    awk -F, -v name="$1" 'NR == 1 { for (i = 1; i <= NF; i++) if ($i == name) at = i } NR > 1 { printf "%s ", $at }' "$2/metrics.csv"
}
differ() { # differ A B WHAT
    checks=$((checks + 1))
    [ "$1" != "$2" ] || fail "$3 changes nothing"
}

printf '# weights\nring\t3\nstar, 0.25\n' >weights.tsv
if ! sanitized; then # there all of it once, together
    expect 0 train --workspace plain
    expect 0 train --workspace torch --mixup 0.4
    expect 0 train --workspace tensorflow --mixup 0.4 --mixup-rule tensorflow
    expect 0 train --workspace weighted --class-weights weights.tsv
    expect 0 train --workspace named --class-weights 'ring=3,star=0.25'
    expect 0 train --workspace balanced --class-weights balanced
    losses=$(column train.loss plain)
    differ "$losses" "$(column train.loss torch)" --mixup
    differ "$(column train.loss torch)" "$(column train.loss tensorflow)" --mixup-rule
    differ "$losses" "$(column train.loss weighted)" --class-weights
    expect_same weighted/metrics.csv named/metrics.csv
    expect_same plain/metrics.csv balanced/metrics.csv # as many images of each class

    # Killed before its first checkpoint, a run begins again, from another folder too.
    cp -r weighted again && rm again/*.safetensors && mkdir elsewhere && cd elsewhere || fail "no other folder"
    expect 0 "$convoy" -q train --resume ../again --workers 2
    cd ..
    expect_same weighted/metrics.csv again/metrics.csv
fi

# All together, in halves: the file of the weights is changed and then gone in between.
all=(--epochs 2 --mixup 0.4 --mixup-rule tensorflow --class-weights weights.tsv --checkpoint-every 1)
expect 0 train --workspace whole "${all[@]}"
expect 0 train --workspace halves "${all[@]}" --run-epochs 1
printf 'ring\t1\n' >weights.tsv
cp -r halves changed
expect 0 "$convoy" train data --resume changed --class-weights weights.tsv
expect_text err 'the class weights are not those of'
rm weights.tsv
expect 0 "$convoy" -q train --resume halves
expect_same whole/checkpoint.safetensors halves/checkpoint.safetensors
expect_same whole/metrics.csv halves/metrics.csv
differ "$(column train.loss whole)" "$(column train.loss changed)" "another file of weights"

if ! sanitized; then
    # Validation: plain cross-entropy, unless the reference program's is asked for; with mixup that is plain too.
    expect 0 train --workspace smoothed --val-loss reference
    expect 0 train --workspace mixed --val-loss reference --mixup 0.4
    checks=$((checks + 1))
    [ "$losses" = "$(column train.loss smoothed)" ] || fail "--val-loss changes the training"
    differ "$(column val.loss plain)" "$(column val.loss smoothed)" "--val-loss reference"
    checks=$((checks + 1))
    [ "$(column val.loss torch)" = "$(column val.loss mixed)" ] || fail "--val-loss reference with mixup is not plain"
fi

expect_sentence 2 'option --mixup' train --mixup -0.1 --workspace refused
expect_sentence 2 'option --mixup-rule is torch or tensorflow' train --mixup-rule numpy --workspace refused
expect_sentence 2 'option --val-loss is plain or reference' train --val-loss smooth --workspace refused
expect_sentence 2 'there is no class "rings"' train --class-weights rings=2 --workspace refused
expect_sentence 2 'not "0"' train --class-weights ring=0 --workspace refused
expect_sentence 66 'nowhere.tsv' train --class-weights nowhere.tsv --workspace refused
expect_sentence 2 'synthetic images have no classes' tiny_train --data-backend synthetic --training-only --epochs 1 --prof 1 \
    --class-weights balanced --workspace refused
[ ! -e refused ] || fail "a run directory was made"
expect 0 tiny_train --data-backend synthetic --training-only --epochs 1 --prof 2 --mixup 0.2 --workspace synthetic
finish
