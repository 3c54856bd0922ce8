# read_generated SHARE IMAGES OBJECTS SECONDS MIB: build/bench/coco_file writes that share of a file like
# instances_train2017.json, and reads it with these results in these bounds (seconds of the processor: other tests may
# run beside it).
read_generated() {
    expect 0 "$CONVOY_BUILD/bench/coco_file" instances_train.json "$1"
    expect_text out "^$2 images with $3 objects in "
    local seconds peak
    seconds=$(grep -oE '[0-9.]+ s of the processor' out | cut -d ' ' -f 1)
    peak=$(grep -oE '[0-9]+ MiB at most' out | cut -d ' ' -f 1)
    echo "$seconds s, $peak MiB"
    sanitized && return
    checks=$((checks + 1))
    awk -v s="$seconds" -v m="$peak" -v most="$4" -v mib="$5" 'BEGIN { exit !(s != "" && s < most && m != "" && m < mib) }' ||
        fail "$seconds s and $peak MiB instead of at most $4 s and $5 MiB"
}
