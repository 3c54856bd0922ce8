# Sourced by the tests of the command line. CONVOY is the program, CONVOY_BUILD its build folder, CONVOY_SOURCE the
# project's.
# A test makes its files in $work, calls `expect` and friends, and ends with `finish`.
set -u
convoy=${CONVOY:?the path of the convoy program}
convoy=$(realpath "$convoy")
sources=${CONVOY_SOURCE:-$(realpath "$(dirname "${BASH_SOURCE[0]}")/../..")}
work=$(mktemp -d "${TMPDIR:-/tmp}/convoy-cli.XXXXXX")
[ -n "${CONVOY_TEST_KEEP:-}" ] && echo "files are kept in $work" || trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
failures=0
checks=0

# One thread is enough for pictures of 32 pixels. Tests run beside each other: a thread that waits must not spin.
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1} OMP_WAIT_POLICY=passive

# From here on the program's networks have all their layers and 16 channels (tests/faults/narrow.c), and take a tenth of
# the time: for tests of files, rules, ranks, signals, and whatever else is the same for any width.
narrow() {
    [ -e "${CONVOY_BUILD:?}/tests/narrow" ] || skip "the library with narrow networks was not built"
    export LD_LIBRARY_PATH=$CONVOY_BUILD/tests/narrow${wide_path:+:$wide_path}
}
wide_path=${LD_LIBRARY_PATH:-}
wide() { # COMMAND...: with the networks' own widths
    LD_LIBRARY_PATH=$wide_path "$@"
}

sanitized() { # is this a build with sanitizers? (about ten times slower)
    grep -qE '^(CMAKE_BUILD_TYPE:.*=Debug|CONVOY_SANITIZE.*:BOOL=ON)$' "${CONVOY_BUILD:-/nonexistent}/CMakeCache.txt" 2>/dev/null
}

skip() { # in CI everything that can be installed is there: missing is an error
    echo "skipped: $*"
    [ -n "${CONVOY_CI:-}" ] && exit 1
    exit 77
}

parts_skipped=0
skip_part() { # a tool is missing; the rest is tested, and the script ends as a skipped test, so that the gap is counted
    echo "skipped in part: $*"
    parts_skipped=$((parts_skipped + 1))
    [ -z "${CONVOY_CI:-}" ] || fail "in CI nothing that can be installed is missing"
}

skip_part_unavoidable() { # the same where nothing can be installed against it
    echo "skipped in part: $*"
    parts_skipped=$((parts_skipped + 1))
}

without_bf16() { # oneDNN computes in bf16 with AVX-512 only
    ! "$convoy" info | grep -qE '^CPU .*(avx512|amx)'
}

fail() {
    failures=$((failures + 1))
    echo "FAILED: $*" >&2
}

# run COMMAND...: stdout to ./out, stderr to ./err, exit code to $rc.
run() {
    "$@" >"$work/out" 2>"$work/err"
    rc=$?
}

show() {
    sed 's/^/    out: /' "$work/out" | tail -n 20 >&2
    sed 's/^/    err: /' "$work/err" | tail -n 20 >&2
}

# expect CODE COMMAND...: the command ends with this code (or one of them: "2|69").
expect() {
    local code=$1
    shift
    checks=$((checks + 1))
    run "$@"
    if [[ ! "$rc" =~ ^($code)$ ]]; then
        fail "exit code $rc instead of $code: $*"
        show
        return 1
    fi
}

# expect_sentence CODE PATTERN COMMAND...: the command ends with this code and says one sentence on stderr: one line,
# "convoy: " before it, no dot at the end, matching the (extended) pattern.
expect_sentence() {
    local code=$1 pattern=$2
    shift 2
    expect "$code" "$@" || return 1
    if [ "$(wc -l <"$work/err")" != 1 ] || ! grep -qE '^convoy: ' "$work/err" || grep -qE '\.$' "$work/err" ||
        ! grep -qE -- "$pattern" "$work/err"; then
        fail "not one sentence that matches /$pattern/: $*"
        show
        return 1
    fi
}

# expect_text FILE PATTERN: a line of the file matches.
expect_text() {
    checks=$((checks + 1))
    grep -qE -- "$2" "$1" && return 0
    fail "no line of $1 matches /$2/"
    show
    return 1
}

# expect_same FILE FILE: equal byte for byte.
expect_same() {
    checks=$((checks + 1))
    cmp "$1" "$2" >&2 && return 0
    fail "$1 and $2 differ"
    if grep -qI '' "$1"; then diff "$1" "$2" | head -n 10 >&2; fi
    return 1
}

finish() {
    [ "$checks" -gt 0 ] || fail "nothing was checked"
    echo "$checks checks, $failures failed"
    [ "$failures" = 0 ] || exit 1
    [ "$parts_skipped" = 0 ] || exit 77
    exit 0
}

# ---- data ----

# make_shapes DIR TRAIN VAL: the built-in data set, that many images of each of the ten classes, 40 pixels wide.
make_shapes() {
    "$convoy" -q dataset shapes "$1" --train-per-class "$2" --val-per-class "$3" --image-size 40 || {
        fail "cannot write the data set"
        finish
    }
}

# The smallest useful training: resnet18 on 32 pixels, batches of 10. More options may follow.
tiny_train() {
    "$convoy" -q train --arch resnet18 --image-size 32 --batch-size 10 --lr 0.02 --workers 2 "$@"
}

# A PNG of 48 x 40 pixels of one colour.
write_png() {
    base64 -d >"$1" <<'END'
iVBORw0KGgoAAAANSUhEUgAAADAAAAAoCAIAAAA35e4mAAAANklEQVR42u3OAQkAAAgDsEcwhv1TGMsagoMFWKbrlAgJCQkJCQkJ
CQkJCQkJCQkJCQkJCX0KLXWogGqy8/SPAAAAAElFTkSuQmCC
END
}

# A PNG of 87 bytes whose header promises 60,000 x 60,000 pixels.
write_bomb() {
    base64 -d >"$1" <<'END'
iVBORw0KGgoAAAANSUhEUgAA6mAAAOpgCAIAAAAPsOIVAAAADElEQVR42mNgoD0AAABkAAG4me+ZAAAAAElFTkSuQmCC
END
}

# truncate_to FILE PERCENT: keep the first part of the file.
truncate_to() {
    truncate -s $(($(stat -c %s "$1") * $2 / 100)) "$1"
}
