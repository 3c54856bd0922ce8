#!/bin/bash
# The command line itself: verbs, options, values, help, and where output goes.
. "$(dirname "$0")/support_common.sh"

# ---- verbs ----
expect_sentence 2 'unknown verb "fly".*train' "$convoy" fly
expect_sentence 2 'unknown verb "trian", perhaps train; the verbs are' "$convoy" trian
expect 2 "$convoy" && expect_text err '^usage: convoy VERB'
expect_sentence 2 '"--fly"' "$convoy" --fly
expect 0 "$convoy" --help && expect_text out '^usage: convoy'
expect 0 "$convoy" help train && expect_text out '^usage: convoy train DIR'
# The first options, and all of them: each in a group.
expect_text out 'convoy train --help-all lists the other [0-9]+'
checks=$((checks + 1))
grep -q -- '--rmsprop-eps' out && fail "--help is not short"
expect 0 "$convoy" train --help-all
expect_text out '^loss and optimizer:$'
expect_text out '--rmsprop-eps'
checks=$((checks + 2))
grep -q '^other:' out && fail "an option is in no group of the help"
named=$(grep -cE '^ +(-., )?--' out)
"$convoy" train --dry-run --json >plan.json
known=$(grep -o '"from":' plan.json | wc -l)
[ "$named" -ge "$known" ] && [ "$known" -gt 80 ] || fail "--help-all has $named options, a dry run $known"
# Misspelt names and values.
expect_sentence 2 'unknown option "--epohcs", perhaps --epochs \(' "$convoy" train data --epohcs 3
expect_sentence 2 'unknown option "--itertions", perhaps --iterations \(convoy bench train' "$convoy" bench train --itertions 3
expect_sentence 2 'unknown network "resnet5", perhaps resnet50; there are' "$convoy" train data --arch resnet5
expect_sentence 2 'not "bf61", perhaps bf16' "$convoy" train data --precision bf61
expect_sentence 2 'kind of data set "shape", perhaps shapes' "$convoy" dataset shape out
printf 'epohcs = 3\n' >misspelt.recipe
expect_sentence 2 'unknown option "epohcs", perhaps epochs' "$convoy" train data --recipe misspelt.recipe --dry-run
expect 0 "$convoy" --version && expect_text out '^convoy [0-9]+\.[0-9]+\.[0-9]+$'
for verb in train evaluate classify info check 'dataset shapes' 'bench train' 'bench infer' 'bench data'; do
    # shellcheck disable=SC2086
    expect 0 "$convoy" $verb --help && expect_text out "^usage: convoy $verb"
    # shellcheck disable=SC2086
    expect_sentence 2 'unknown option "--no-such-option"' "$convoy" $verb --no-such-option 3
done

# ---- missing and superfluous arguments ----
expect_sentence 2 'train needs' "$convoy" train
expect_sentence 2 '"b"' "$convoy" train a b
expect_sentence 2 'IMAGE' "$convoy" classify --weights w
expect_sentence 2 '--weights' "$convoy" classify picture.jpg
expect_sentence 2 '--weights' "$convoy" evaluate data
expect_sentence 2 'shapes' "$convoy" dataset
expect_sentence 2 '"cubes"' "$convoy" dataset cubes out
expect_sentence 2 '"fast"' "$convoy" bench fast
expect_sentence 2 '--plan' "$convoy" info --plan

# ---- impossible values: the sentence names the option (which are: unit/options/test_options.c) ----
expect_sentence 2 'batch-size' "$convoy" train data --batch-size 0
expect_sentence 2 'batch-size.*needs a value' "$convoy" train data --batch-size
expect_sentence 2 'batch-size.*needs a value' "$convoy" train data -b --nesterov
expect_sentence 2 '--lr' "$convoy" train data --lr nan
expect_sentence 2 'lr-schedule.*cosine' "$convoy" train data --lr-schedule square
expect_sentence 2 'arch.*resnet50' "$convoy" train data --arch resnet51
expect_sentence 2 'image-size' "$convoy" train data --image-size=
expect_sentence 2 'nesterov' "$convoy" train data --nesterov=maybe
expect_sentence 2 'topk' "$convoy" classify picture.jpg --weights w --topk 0
expect_sentence 2 'format.*text\|json\|csv' "$convoy" classify picture.jpg --weights w --format xml
expect_sentence 2 'batch-size' "$convoy" bench train --batch-size 1,,8
expect_sentence 2 'image-size' "$convoy" dataset shapes out --image-size 8
expect_sentence 2 'quality' "$convoy" dataset shapes out --quality 101
[ ! -e out/train ] || fail "a refused command wrote something"

# ---- ambiguous prefixes ----
expect_sentence 2 'ambiguous.*--weight-decay' "$convoy" train data --w 3

# ---- spellings that mean the same: recognised, so that only the folder is missing ----
for spelling in '--batch-size 8' '--batch-size=8' '--batch_size 8' '-b 8' '-b8' '-b=8' '--batch 8' '--learning-rate 1' \
    '--wd 1e-4' '--label_smoothing=0.1' '--arch resnet18' '-a resnet18' '--nest' '-q -b 8' '--nesterov=on' '--nesterov=OFF' '-q --strict=1' '--quiet=on' '--quiet=no' '--seed 7 --'; do
    # shellcheck disable=SC2086
    expect_sentence 66 'nowhere' "$convoy" -q train $spelling nowhere
done
expect_sentence 66 '"-x"' "$convoy" -q train -- -x

# ---- a control character in a name comes out escaped ----
expect 66 "$convoy" -q check $'no\e[31mwhere'
if grep -q $'\e' err; then fail "an escape sequence reached the terminal"; fi

# ---- results that cannot be written ----
if [ -w /dev/full ]; then
    run sh -c '"$0" --help >/dev/full' "$convoy"
    [ "$rc" = 74 ] || fail "a full standard output ended with $rc instead of 74"
    checks=$((checks + 1))
fi
finish
