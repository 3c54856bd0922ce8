#!/bin/bash
# Filters, DALI's rules and changes of colour: stored with the weights, taken up again, and refused where they do not go.
. "$(dirname "$0")/support_common.sh"
narrow # the same for any width
expect 0 "$convoy" -q dataset shapes data --image-size 96 --train-per-class 2 --val-per-class 1
train() { "$convoy" -q train data --arch resnet18 --image-size 32 --batch-size 5 --epochs 1 --seed 3 "$@"; }

# ---- each changes what is computed, in training and, unless it is of colours, in validation ----
expect 0 train --workspace plain
kinds=(bicubic dali dali-bicubic tensorflow-dali colors)
sanitized && kinds=(dali)
for kind in "${kinds[@]}"; do
    case $kind in
    bicubic) options=(--interpolation bicubic) stored='"interpolation": *"bicubic"' ;;
    dali) options=(--data-backend dali-gpu --interpolation triangular) stored='"data_backend": *"dali"' ;;
    dali-bicubic) options=(--data-backend dali-cpu --interpolation bicubic) stored='"interpolation": *"bicubic".*"data_backend": *"dali"' ;;
    tensorflow-dali) options=(--data-backend tensorflow-dali) stored='"data_backend": *"tensorflow-dali"' ;;
    colors) options=(--brightness 0.4 --contrast 0.4 --saturation 0.4 --hue 0.1) stored='"interpolation": *"bilinear"' ;;
    esac
    expect 0 train "${options[@]}" --workspace $kind
    checks=$((checks + 1))
    cmp -s plain/metrics.csv $kind/metrics.csv && fail "$kind changes nothing"
    checks=$((checks + 1))
    tr -d '\\' <$kind/model_best.safetensors | head -c 100000 | grep -aqE "$stored" || fail "$kind is not in the weights"
    # What the run found on its validation images is what the weights find on them later.
    expect 0 "$convoy" -q evaluate data --weights $kind/model_best.safetensors --format json
    checks=$((checks + 1))
    loss=$(grep -oE '"loss": [0-9.e+-]+' out | cut -d' ' -f2)
    awk -F, -v loss="$loss" 'NR == 2 { d = $3 - loss; exit !(d < 1e-5 * loss && d > -1e-5 * loss) }' $kind/metrics.csv ||
        fail "$kind: a loss of $loss where the run had $(tail -n 1 $kind/metrics.csv)"
done

# ---- weights that do not say their filter, or another one: evaluate and classify can be told ----
loss_with() { "$convoy" -q evaluate data --format json "$@" 2>&1 | grep -oE '"loss": [0-9.e+-]+'; }
bilinear=$(loss_with --weights plain) bicubic=$(loss_with --weights plain --interpolation bicubic)
expect 0 test -n "$bilinear"
expect 0 test "$bilinear" = "$(loss_with --weights plain --interpolation bilinear)"
expect 0 test "$bilinear" != "$bicubic"
if ! sanitized; then
    expect 0 test "$(loss_with --weights bicubic)" = "$(loss_with --weights bicubic --interpolation bicubic)"
    expect 0 test "$(loss_with --weights bicubic)" != "$(loss_with --weights bicubic --interpolation bilinear)"
fi

# ---- refused ----
for backend in tensorflow tensorflow-dali; do
    expect_sentence 2 "option --interpolation bicubic is for --data-backend pytorch" "$convoy" evaluate data --weights plain --interpolation bicubic \
        --data-backend $backend
done
expect_sentence 2 "bilinear or bicubic, not \"bicubik\"" "$convoy" evaluate data --weights plain --interpolation bicubik
expect_sentence 2 "option --interpolation bicubic is for --data-backend pytorch, dali-cpu and dali-gpu" train --interpolation bicubic --data-backend tensorflow
expect_sentence 2 "option --interpolation bicubic is for --data-backend pytorch, dali-cpu and dali-gpu" train --interpolation bicubic --data-backend tensorflow-dali
expect_sentence 2 "triangular is for --data-backend dali-cpu" train --interpolation triangular
expect_sentence 2 "options --data-backend dali-cpu and --augmentation autoaugment exclude" train --data-backend dali-cpu \
    --augmentation autoaugment
expect_sentence 2 "option --decode fast is for the crops of torchvision's" train --data-backend dali-cpu --decode fast
finish
