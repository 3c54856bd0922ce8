#!/bin/sh
# scripts/check-elf: what was built and what is installed passes it; a path that is empty, relative, absolute or of the old
# kind, and a program bound late, do not.
set -eu
source=$1
build=${CONVOY_BUILD:?the build folder}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() {
    echo "FAILED: $*"
    exit 1
}
refused() { # MESSAGE: the broken program is named with it
    if "$source/scripts/check-elf" "$work/broken" >"$work/out"; then
        fail "passed: $1"
    fi
    grep -q "$1" "$work/out" || {
        cat "$work/out"
        fail "nothing is said of: $1"
    }
}
broken() { # PATCHELF-OPTIONS...: the program with other paths
    cp "$build/convoy" "$work/broken/convoy"
    patchelf "$@" "$work/broken/convoy"
}

"$source/scripts/check-elf" --foreign '^libcud' "$build" || fail 'what was built'
cmake --install "$build" --prefix "$work/prefix" >"$work/out" || {
    cat "$work/out"
    fail 'the installation'
}
"$source/scripts/check-elf" "$work/prefix" || fail 'what is installed'
env -i "$work/prefix/bin/convoy" --version >/dev/null || fail 'the installed program does not start'

mkdir "$work/broken"
broken --set-rpath '$ORIGIN:'
refused 'an element of its RUNPATH is empty'
broken --set-rpath 'lib'
refused 'its RUNPATH leads elsewhere: lib'
broken --set-rpath "$build"
refused 'its RUNPATH leads elsewhere: /'
broken --force-rpath --set-rpath '$ORIGIN'
refused 'has an RPATH'
echo 'int main(void) { return 0; }' | cc -x c -Wl,-z,lazy -no-pie -o "$work/broken/convoy" -
refused 'symbols are bound late'
refused 'is loaded at a fixed address'
refused 'no stack protector'
rm "$work/broken/convoy"
refused 'there is no program and no library'
echo "the paths and the protection of $(find "$build" -maxdepth 1 -name 'libconvoy*.so' | wc -l) libraries and the program are right"
