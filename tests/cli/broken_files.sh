#!/bin/bash
# A data set of which 5 % cannot be read: it trains to its end, names each bad file once, and counts them; check finds
# the same ones. As a folder, and as TFRecords that were damaged afterwards.
. "$(dirname "$0")/support_common.sh"
narrow
make_shapes data 20 1
expect 0 "$convoy" -q dataset tfrecord data records --train-shards 2 --val-shards 1
spoil() { # KIND FILE
    case $1 in
    truncated) truncate_to "$2" 70 ;;
    short) truncate_to "$2" 2 ;;
    empty) : >"$2" ;;
    text) echo "this is a text" >"$2" ;;
    header) printf '\0\0\0\0' | dd of="$2" bs=1 seek=2 conv=notrunc 2>/dev/null ;;
    esac
}
n=0
bad=()
for class in data/train/*; do # one image of twenty in each class
    kinds=(truncated empty text header short)
    file=$class/$(printf '%06d.jpg' $((n * 2)))
    spoil "${kinds[n % 5]}" "$file"
    bad+=("$file")
    n=$((n + 1))
done
[ "$n" = 10 ] || fail "$n classes"

expect 65 "$convoy" check data
for file in "${bad[@]}"; do expect_text out "problem: .*$file"; done
expect 65 "$convoy" -q check data --format json
expect_text out '"bad_images": 10,'

# Of 16 bits of grey all that is above 255 is white, a quarter of this image; where nothing is, there is nothing to say.
cp -r data grey
class=$(ls data/train | head -n 1)
base64 -d >grey/train/$class/deep.png <<'END'
iVBORw0KGgoAAAANSUhEUgAAACgAAAAoEAAAAAD5BTvyAAAALklEQVR42u3MoQ0AMAwDsJw6sOt7RS8YC5osc2dOV4TCL8PcMqFQKBQKhULh2w
I/ONiObsDiIgAAAABJRU5ErkJggg==
END
base64 -d >grey/train/$class/low.png <<'END'
iVBORw0KGgoAAAANSUhEUgAAACgAAAAoEAAAAAD5BTvyAAAAJklEQVR42u3MMQ0AAAwDoPoX3VTEdhJ+kj4TCoVCoVAoFAqFwpsBJXsz23jJZw
AAAAAASUVORK5CYII=
END
expect 65 "$convoy" -q check grey
expect_text out "problem: .*grey/train/$class/deep.png\" has 16 bits of grey, and all values above 255 become white, 25 % of the image: save it"
checks=$((checks + 1))
grep -q 'low.png' out && fail "an image with 16 bits of grey and no value above 255 is a problem"

epochs=2
sanitized && epochs=1
expect 0 tiny_train data --epochs $epochs --workspace run
for file in "${bad[@]}"; do
    [ "$(grep -c "$file" err)" = 1 ] || fail "$file was named $(grep -c "$file" err) times"
done
expect_text out '^10 unreadable images were replaced by others'
expect_text run/experiment_raport.json '"train.bad_images": ?10'
[ "$(wc -l <run/metrics.csv)" = $((epochs + 1)) ] || fail "not all epochs are in metrics.csv"

# Packing leaves them out, and says so.
expect 0 "$convoy" dataset pack data packed
expect_text err 'wrote 190 training .* 10 left out'
for file in "${bad[@]}"; do expect_text err "$file.*the image is left out"; done
expect 0 "$convoy" check packed

# Of the records, each twentieth gets another byte.
expect 0 "$convoy" dataset index records indexes
bad=()
for shard in records/train-*; do
    n=0
    while read -r offset size; do
        if ((n++ % 20 == 7)); then
            at=$((offset + size - 100))
            byte=$(od -An -tu1 -j $at -N 1 "$shard")
            printf "\\$(printf %03o $((byte ^ 255)))" | dd of="$shard" bs=1 seek=$at conv=notrunc 2>/dev/null
            bad+=("the record at byte $offset of \"$shard\" is damaged")
        fi
    done <indexes/"$(basename "$shard")"
done
expect 0 test ${#bad[@]} = 10
expect 65 "$convoy" check records
for sentence in "${bad[@]}"; do expect_text out "problem: $sentence"; done
expect_text err '10 of 210 images in .records. are bad'
expect 0 tiny_train records --epochs 1 --workspace records-run
for sentence in "${bad[@]}"; do
    [ "$(grep -c "$sentence" err)" = 1 ] || fail "$sentence: said $(grep -c "$sentence" err) times"
done
expect_text out '^10 unreadable images were replaced by others'
expect_text records-run/experiment_raport.json '"train.bad_images": ?10'
finish
