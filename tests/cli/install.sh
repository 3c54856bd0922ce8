#!/bin/bash
# cmake --install, then a stranger's program against the installed library with nothing but pkg-config; every public
# header compiles alone, as C11 and as C++.
. "$(dirname "$0")/support_common.sh"
for tool in cmake pkg-config cc; do
    command -v $tool >/dev/null || skip "no $tool here"
done
[ -n "${CONVOY_BUILD:-}" ] || skip "CONVOY_BUILD is not set"
prefix=$work/prefix
expect 0 cmake --install "$CONVOY_BUILD" --prefix "$prefix"
pc=$(find "$prefix" -name convoy.pc)
checks=$((checks + 1))
[ -n "$pc" ] || { fail "no convoy.pc is installed"; finish; }
export PKG_CONFIG_PATH=${pc%/*}
package() { pkg-config --define-variable=prefix="$prefix" "$@"; }
libdir=$(package --variable=libdir convoy)

# ---- completion and manual pages ----
for file in man/man1/convoy.1 man/man1/convoy-train.1 bash-completion/completions/convoy zsh/site-functions/_convoy \
    fish/vendor_completions.d/convoy.fish; do
    checks=$((checks + 1))
    [ -s "$prefix/share/$file" ] || fail "share/$file is not installed"
done

# ---- headers ----
for header in "$prefix"/include/convoy/*.h; do
    expect 0 cc -std=c11 -Wall -Wextra -Wpedantic -Werror -fsyntax-only -x c "$header" -I"$prefix/include"
    if command -v c++ >/dev/null; then
        expect 0 c++ -std=c++11 -Wall -Wextra -Werror -fsyntax-only -x c++ "$header" -I"$prefix/include"
    fi
done

# ---- only the public names are visible ----
if command -v nm >/dev/null; then
    nm -D --defined-only "$libdir/libconvoy.so" | awk '$2 ~ /[TDBR]/ { print $3 }' |
        grep -vE '^(cvy_|__asan|__ubsan|_init$|_fini$)' >foreign
    checks=$((checks + 1))
    [ ! -s foreign ] || fail "the library shows names that are not cvy_...: $(head -n 5 foreign | tr '\n' ' ')"
fi

# ---- the example ----
flags=()
# A program with a sanitized library needs the sanitizer's runtime first.
sanitized && flags=(-fsanitize=address,undefined)
# shellcheck disable=SC2046
expect 0 cc -std=c11 -Wall -Wextra ${flags[@]+"${flags[@]}"} "$sources/examples/classify_memory.c" -o example \
    $(package --cflags --libs convoy)
export LD_LIBRARY_PATH=$libdir
make_shapes data 2 1
picture=$(find data/val -name '*.jpg' | sort | head -n 1)
expect 0 "$prefix/bin/convoy" -q train data --arch resnet18 --image-size 32 --batch-size 10 --epochs 1 --workspace run
expect 0 ./example run/model_best.safetensors "$picture"
expect_text out '^ *[0-9.]+ %  '
# The program gives the same answer.
class=$(head -n 1 out | sed 's/.*%  //')
expect 0 "$prefix/bin/convoy" -q classify "$picture" --weights run/model_best.safetensors --format csv --topk 1
expect_text out ",1,[0-9]+,$class,"
expect 0 "$prefix/bin/convoy" -q convert run/model_best.safetensors model.pth
expect 0 ./example model.pth "$picture"
expect_text out "  $class\$"
# A file that torchvision's network was saved to, without any word of Convoy in it.
if ${CONVOY_PYTHON:-/usr/bin/python3} -c 'import torch, torchvision' 2>/dev/null; then
    expect 0 ${CONVOY_PYTHON:-/usr/bin/python3} -c 'import torch, torchvision
torch.save(torchvision.models.resnet18(num_classes=4).state_dict(), "torchvision.pth")'
    expect 0 ./example torchvision.pth "$picture"
    expect_text out '^ *[0-9.]+ %  \(no name\)$'
else
    skip_part "no torchvision here"
fi
echo text >text.jpg
expect 65 ./example run/model_best.safetensors text.jpg
expect_text err 'text.jpg'
expect 66 ./example missing.safetensors "$picture"
expect 2 ./example
finish
