#!/bin/sh
# The loader alone on full-size ImageNet JPEGs: decode, random crop, resize to 224, mirror. Images per second and core of
# `convoy bench data`, with one thread on one core; exit 1 below 600, 77 without the images.
#   CONVOY_TEST_DATA=DIR bench/data.sh [ROUNDS]     # DIR/imagenet-samples; the median of 3 rounds counts
set -eu
folder=$(cd "$(dirname "$0")" && pwd)
convoy=${CONVOY:-$folder/../build/convoy}
images=${CONVOY_TEST_DATA:-}/imagenet-samples
least=600

if [ ! -d "$images" ]; then
    echo "skipped: no images in CONVOY_TEST_DATA/imagenet-samples"
    exit 77
fi
for round in $(seq "${1:-3}"); do
    rate=$("$convoy" -q bench data "$images" --image-size 224 --workers 1 --format json |
        sed -n 's/.*"images_per_second": *\([0-9.]*\).*/\1/p')
    echo "round $round: $rate images/s" >&2
    echo "$rate"
done | sort -n | awk -v least=$least '
    { rate[NR] = $1 }
    END {
        median = rate[int((NR + 1) / 2)]
        printf "%.0f images/s per core (at least %d wanted)\n", median, least
        exit !(median >= least)
    }'
