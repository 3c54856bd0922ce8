#!/bin/sh
# scripts/check-glibc: passes what is old enough, names the symbols of what is not, and refuses a folder without programs.
set -eu
source=$1
build=${CONVOY_BUILD:?the build folder}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() {
    echo "FAILED: $*"
    exit 1
}
cp "$build/libconvoy.so" "$work/"
"$source/scripts/check-glibc" 9.9 "$work" || fail 'no glibc can be newer than 9.9'
if "$source/scripts/check-glibc" 2.2 "$work" >"$work/out"; then
    fail 'passed with glibc 2.2'
fi
grep -q 'libconvoy.so needs glibc 2\.[0-9.]* [a-z_]' "$work/out" || fail "no symbol is named: $(head -n 3 "$work/out")"
grep -q 'glibc 2\.2\.5' "$work/out" && fail '2.2.5 is taken for newer than 2.2'
mkdir "$work/none"
! "$source/scripts/check-glibc" 2.28 "$work/none" >"$work/out" || fail 'passed without a program'
mkdir "$work/torn"
head -c 200 "$build/libconvoy.so" >"$work/torn/libconvoy.so"
! "$source/scripts/check-glibc" 9.9 "$work/torn" >"$work/out" 2>/dev/null || fail 'passed a file that cannot be read'
echo "the check of the C library's version works"
