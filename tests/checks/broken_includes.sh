#!/bin/sh
# check-includes and check-calls find what they are for: each file below breaks one rule, and a clean tree passes.
set -eu
source=$1
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT

fresh() {
    rm -rf "$tree"
    mkdir -p "$tree/include/convoy" "$tree/src/base" "$tree/src/graph" "$tree/src/backend/ref" "$tree/src/backend/cpu" \
        "$tree/src/comm" "$tree/src/run" "$tree/src/report/drawing" "$tree/src/data/image" "$tree/src/data/set" "$tree/tools"
    echo '#include <stdio.h>' >"$tree/include/convoy/a.h"
    echo '#include "convoy/a.h"' >"$tree/src/base/a.h"
    echo '#include "base/a.h"' >"$tree/src/graph/a.c"
    echo '#include <dnnl.h>' >"$tree/src/backend/cpu/cpu.h"
    echo '#include "backend/cpu/cpu.h"' >"$tree/src/backend/cpu/cpu.c"
    echo '#include "report/drawing/plot.h"' >"$tree/src/run/loop.c"
    # What a folder lets others include; a folder inside it needs no permission, nor do files of the folder itself.
    echo '#include "base/a.h"' >"$tree/src/base/api.h"
    echo '#include "report/drawing/plot.h"' >"$tree/src/report/drawing/api.h"
    echo '#include "report/common.h"' >"$tree/src/report/drawing/plot.c"
    echo '#include "data/image/image.h"' >"$tree/src/data/image/api.h"
    echo '#include <png.h>' >"$tree/src/data/image/png.c"
    echo '#include "data/image/inside.h"' >"$tree/src/data/image/image.c"
    echo '#include "data/image/image.h"' >"$tree/src/data/set/set.h"
    # Header and source of one name are one.
    echo '#include "base/pair.h"' >"$tree/src/base/pair.c"
    echo '#include "base/pair.inc"' >"$tree/src/base/pair.h"
    : >"$tree/src/base/pair.inc"
    printf '/* never exit() here */\nint x = sizeof "abort()";\n' >"$tree/src/base/b.c"
    echo '#include "convoy/a.h"' >"$tree/tools/main.c"
}
# what must be found, file, line, script
expect_found() {
    fresh
    check_found "$@"
}
check_found() {
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

# what the last script must have said
expect_text() {
    grep -q "$1" "$tree/out" || {
        echo "not said: $1"
        cat "$tree/out"
        exit 1
    }
}

fresh
"$source/scripts/check-includes" "$tree"
"$source/scripts/check-calls" "$tree"
expect_found 'a layer above' src/base/bad.c '#include "graph/graph.h"' check-includes
expect_found 'a layer above' src/report/bad.c '#  include "run/loop.h"' check-includes
expect_found 'a layer above' src/data/set/bad.c '#include "report/drawing/plot.h"' check-includes
expect_found 'a private folder' src/backend/ref/bad.c '#include "backend/cpu/cpu.h"' check-includes
expect_found 'a private folder' src/backend/bad.c '#include "backend/cpu/cpu.h"' check-includes
expect_found 'an inside header' tools/bad.c '#include "base/a.h"' check-includes
expect_found 'an inside header' include/convoy/bad.h '#include "base/a.h"' check-includes
expect_found 'an unnamed layer' src/base/bad.c '#include "a.h"' check-includes
expect_found 'an unknown layer' src/base/bad.c '#include "other/a.h"' check-includes
expect_found "another folder's library" src/run/bad.c '#include <dnnl.h>' check-includes
expect_found "another folder's library" src/base/bad.c '#include <yajl/yajl_parse.h>' check-includes
expect_found "another folder's library" src/data/set/bad.c '#include <png.h>' check-includes
expect_found "another folder's library" src/data/set/bad.c '#include <jpeglib.h>' check-includes
expect_found "another folder's library" src/report/bad.c '#include <cairo/cairo.h>' check-includes
expect_found 'a private folder' src/comm/bad.c '#include "comm/mpi/module.h"' check-includes
expect_found 'a header that is not for others' src/data/set/bad.c '#include "data/image/inside.h"' check-includes
expect_text 'add it there if other folders may use it'
expect_found 'a header of a folder without api.h' src/report/bad.c '#include "data/set/set.h"' check-includes
expect_found 'a header that is not for the folder around it' src/report/bad.c '#include "report/drawing/draw.h"' check-includes

fresh
echo '#include "base/a.h"' >"$tree/src/base/pair.inc"
check_found 'a circle of two files' src/base/a.h '#include "base/pair.h"' check-includes
expect_text 'a circle of files: base/a -> base/pair -> base/a'
fresh
echo '#include "base/third.h"' >"$tree/src/base/pair.inc"
echo '#include "base/a.h"' >"$tree/src/base/third.c"
echo '#include "base/third.h"' >"$tree/src/base/fourth.c" # leads into the circle and is none of it
check_found 'a circle of three files' src/base/a.h '#include "base/pair.h"' check-includes
expect_text 'a circle of files: base/a -> base/pair -> base/third -> base/a'
fresh
echo '#include "data/set/set.h"' >"$tree/src/data/set/api.h"
echo '#include "data/set/set.h"' >"$tree/src/data/image/bad.c"
check_found 'a circle of folders' src/data/set/set.h '#include "data/image/image.h"' check-includes
expect_text 'a circle of folders: src/data/set/ -> src/data/image/ -> src/data/set/'

expect_found 'exit' src/base/bad.c 'if (x) exit(1);' check-calls
expect_found 'printf' src/base/bad.c 'printf("x");' check-calls
expect_found 'stderr' src/base/bad.c 'fputs("x", stderr);' check-calls
