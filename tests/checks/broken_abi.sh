#!/bin/sh
# scripts/check-abi: the headers as they are pass, and each change that a compiled program would notice is found.
set -eu
source=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() {
    echo "FAILED: $*"
    exit 1
}
fresh() {
    rm -rf "$work/include"
    cp -r "$source/include" "$work/include"
}
# what changes, header, sed's command, what check-abi must say
expect_found() {
    fresh
    sed -i "$3" "$work/include/convoy/$2"
    ! cmp -s "$work/include/convoy/$2" "$source/include/convoy/$2" || fail "$2 has nothing for $3"
    if "$source/scripts/check-abi" "$work/include" >"$work/out" 2>&1; then
        fail "not found: $1"
    fi
    grep -qE -- "$4" "$work/out" || fail "$1: $(cat "$work/out")"
}

"$source/scripts/check-abi"
fresh
sed -i 's|^struct cvy_pixels {|/* A comment, (only). */ &|' "$work/include/convoy/infer.h"
"$source/scripts/check-abi" "$work/include" || fail 'a comment is taken for a change'
expect_found 'a field between others' infer.h 's/^    int width, height;/    int depth;\n&/' '^\+ struct cvy_pixels: .depth at '
expect_found 'two fields exchanged' infer.h 's/int images, height, width;/int images, width, height;/' '^- struct cvy_input_tensor: .height at 24,'
expect_found 'another type of the same size' detect.h 's/float score;  /int32_t score;/' '^\+ struct cvy_detected_object: .score at [0-9]+, 4: int32_t score$'
expect_found 'an argument more' detect.h 's/int \*count);/int *count, int limit);/' '^\+ cvy_status cvy_detect_pixels\(.*int limit\)$'
expect_found 'a function less' status.h '/cvy_version(void)/d' '^- const char \*cvy_version\(void\)$'
expect_found 'another value' status.h 's/CVY_STOPPED = 75/CVY_STOPPED = 76/' '^\+ CVY_STOPPED = 76$'
expect_found 'a value between others' infer.h 's/CVY_PIXELS_BGR,/CVY_PIXELS_ARGB, &/' '^\+ CVY_PIXELS_BGR = 2$'
# The compiler leaves bytes after a bool before a pointer: programs have anything there, so no field may come there later.
expect_found 'a field where there were only padding bytes' pull.h 's/^    bool again;  .*/&\n    bool late;/' 'where they may leave anything$'
echo "the check of the interface works"
