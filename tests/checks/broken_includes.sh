#!/bin/sh
# check-includes and check-calls find what they are for: each file below breaks one rule, and a clean tree passes.
set -eu
source=$1
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT

fresh() {
    rm -rf "$tree"
    mkdir -p "$tree/include/convoy" "$tree/src/base" "$tree/src/graph" "$tree/src/backend/ref" "$tree/src/backend/cpu" \
        "$tree/src/train" "$tree/src/report" "$tree/tools"
    echo '#include <stdio.h>' >"$tree/include/convoy/a.h"
    echo '#include "convoy/a.h"' >"$tree/src/base/a.h"
    echo '#include "base/a.h"' >"$tree/src/graph/a.c"
    echo '#include <dnnl.h>' >"$tree/src/backend/cpu/cpu.h"
    echo '#include "backend/cpu/cpu.h"' >"$tree/src/backend/cpu/cpu.c"
    echo '#include "report/drawing/plot.h"' >"$tree/src/train/loop.c"
    printf '/* never exit() here */\nint x = sizeof "abort()";\n' >"$tree/src/base/b.c"
    echo '#include "convoy/a.h"' >"$tree/tools/main.c"
}
# what must be found, file, line, script
expect_found() {
    fresh
    echo "$3" >"$tree/$2"
    if "$source/scripts/$4" "$tree" >"$tree/out"; then
        echo "$4 did not find $1: $3 in $2"
        exit 1
    fi
    grep -q "^$2:1: " "$tree/out" || {
        echo "$4 does not name $2"
        cat "$tree/out"
        exit 1
    }
}

fresh
"$source/scripts/check-includes" "$tree"
"$source/scripts/check-calls" "$tree"
expect_found 'a layer above' src/base/bad.c '#include "graph/graph.h"' check-includes
expect_found 'a layer above' src/report/bad.c '#  include "train/loop.h"' check-includes
expect_found 'a private folder' src/backend/ref/bad.c '#include "backend/cpu/cpu.h"' check-includes
expect_found 'a private folder' src/backend/bad.c '#include "backend/cpu/cpu.h"' check-includes
expect_found 'an inside header' tools/bad.c '#include "base/a.h"' check-includes
expect_found 'an inside header' include/convoy/bad.h '#include "base/a.h"' check-includes
expect_found 'an unnamed layer' src/base/bad.c '#include "a.h"' check-includes
expect_found 'an unknown layer' src/base/bad.c '#include "other/a.h"' check-includes
expect_found "another folder's library" src/train/bad.c '#include <dnnl.h>' check-includes
expect_found "another folder's library" src/base/bad.c '#include <yajl/yajl_parse.h>' check-includes
expect_found 'exit' src/base/bad.c 'if (x) exit(1);' check-calls
expect_found 'printf' src/base/bad.c 'printf("x");' check-calls
expect_found 'stderr' src/base/bad.c 'fputs("x", stderr);' check-calls
