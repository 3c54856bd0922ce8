#!/bin/sh
# check-declarations names what only its own file uses, and nothing else.
set -eu
source=$1
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
mkdir -p "$tree/src/base" "$tree/tests"

cat >"$tree/src/base/a.h" <<'END'
/* alone() is not declared here, in a comment. */
#define BY_MACRO(x) by_macro(x, 1)
struct shape {
    int (*rank)(void);
};
static inline int in_header(int x)
{
    return x ? x : 1;
}
int used(const struct shape *shape); /* by b.c */
int tested(int x); int by_macro(int x, int y);
CVY_CHECKED const char *
alone_here(int x);
extern int alone_too(void (*handler)(int));
END
cat >"$tree/src/base/a.c" <<'END'
#include "base/a.h"
int used(const struct shape *shape) { return shape->rank(); }
int tested(int x) { return x; }
int by_macro(int x, int y) { return x + y; }
const char *alone_here(int x) { return x ? "used" : "alone_too"; }
int alone_too(void (*handler)(int)) { handler(0); return alone_here(1)[0]; }
END
echo 'int b(void) { return used(0); }' >"$tree/src/base/b.c"
echo 'int main(void) { return tested(0) + in_header(1); }' >"$tree/tests/test_a.c"

if "$source/scripts/check-declarations" "$tree" >"$tree/out"; then
    echo "nothing was found"
    exit 1
fi
LC_ALL=C sort "$tree/out" >"$tree/found"
cat >"$tree/expected" <<'END'
src/base/a.h: alone_here is for src/base/a.c alone
src/base/a.h: alone_too is for src/base/a.c alone
END
diff "$tree/expected" "$tree/found"

echo 'int c(void) { return alone_here(0)[0] + alone_too(0); }' >"$tree/src/base/c.c"
"$source/scripts/check-declarations" "$tree"
