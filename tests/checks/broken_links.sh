#!/bin/sh
# check-links finds links that lead nowhere, and nothing else.
set -eu
source=$1
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT

fresh() {
    rm -rf "$tree"
    mkdir -p "$tree/doc/images" "$tree/src"
    printf '# Head\n\n[page](doc/page.md) ![picture](doc/images/a.png) [folder](src) [site](https://example.org/x)\n' \
        >"$tree/README.md"
    printf '# A page: `code` & more\n\n## Twice\n\n## Twice\n\n[home](../README.md#head) [here](#twice-1)\n' \
        >"$tree/doc/page.md"
    printf '[code](page.md#a-page-code--more)\n\n```\n# no heading [x](nowhere.md)\n```\n`[x](nowhere.md)`\n' \
        >"$tree/doc/other.md"
    : >"$tree/doc/images/a.png"
}
# what must be found, file, its new last line
expect_found() {
    fresh
    echo "$3" >>"$tree/$2"
    line=$(wc -l <"$tree/$2" | tr -d ' ')
    if "$source/scripts/check-links" "$tree" >"$tree/out"; then
        echo "check-links did not find $1: $3 in $2"
        exit 1
    fi
    if [ "$(wc -l <"$tree/out")" -ne 1 ] || ! grep -q "^$2:$line: " "$tree/out"; then
        echo "check-links does not name line $line of $2, or more than that"
        cat "$tree/out"
        exit 1
    fi
}

fresh
"$source/scripts/check-links" "$tree"
expect_found 'a missing page' README.md '[gone](doc/gone.md)'
expect_found 'a link from the wrong folder' doc/page.md '[page](doc/other.md)'
expect_found 'a missing picture' README.md '![picture](doc/images/b.png)'
expect_found 'a missing heading' README.md '[page](doc/page.md#three-times)'
expect_found 'a missing heading of its own page' doc/page.md '[here](#twice-2)'
expect_found 'a heading in code' doc/page.md '[other](other.md#no-heading-x)'
expect_found 'the second of two links' README.md '[page](doc/page.md) and [gone](gone.md)'
expect_found 'a link out of the project' doc/page.md '[out](../../README.md)'

rm -rf "$tree" && mkdir "$tree"
if "$source/scripts/check-links" "$tree" 2>"$tree/out"; then
    echo "check-links says that nothing is in order"
    exit 1
fi
