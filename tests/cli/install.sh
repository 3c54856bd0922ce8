#!/bin/bash
# cmake --install, the folder moved, then a stranger's programs against the installed library with pkg-config and with
# CMake, as C and as C++; every public header compiles alone.
. "$(dirname "$0")/support_common.sh"
for tool in cmake pkg-config cc; do
    command -v $tool >/dev/null || skip "no $tool here"
done
[ -n "${CONVOY_BUILD:-}" ] || skip "CONVOY_BUILD is not set"
prefix=$work/prefix
expect 0 cmake --install "$CONVOY_BUILD" --prefix "$work/elsewhere"
mv "$work/elsewhere" "$prefix"
for file in LICENSE examples/classify_memory.c recipes; do
    checks=$((checks + 1))
    [ -n "$(find "$prefix" -path "*/$file*" -type f)" ] || fail "$file is not installed"
done
pc=$(find "$prefix" -name convoy.pc)
checks=$((checks + 1))
[ -n "$pc" ] || { fail "no convoy.pc is installed"; finish; }
export PKG_CONFIG_PATH=${pc%/*}
package() { pkg-config "$@"; }
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

# ---- find_package, from the moved folder; defaults of option structs in C++ ----
cat >defaults.cc <<'EOF'
#include <convoy/convoy.h>
#include <cstdio>
int main()
{
    const struct cvy_classifier_options classifier = CVY_CLASSIFIER_DEFAULTS;
    const struct cvy_pack_options pack = CVY_PACK_DEFAULTS;
    const struct cvy_detect_options detect = CVY_DETECT_DEFAULTS;
    (void)pack;
    std::printf("%d %d %g %s\n", classifier.workers, classifier.batch_size, detect.threshold, cvy_version());
}
EOF
cat >CMakeLists.txt <<'EOF'
cmake_minimum_required(VERSION 3.18)
project(stranger LANGUAGES C CXX)
find_package(convoy 0.1 REQUIRED)
set(CMAKE_CXX_STANDARD 11)
add_executable(stranger defaults.cc)
target_compile_options(stranger PRIVATE -Wall -Wextra -Wpedantic -Werror)
target_link_libraries(stranger PRIVATE convoy::convoy)
EOF
if command -v c++ >/dev/null; then
    expect 0 cmake -S . -B cmake-build -DCMAKE_PREFIX_PATH="$prefix" "-DCMAKE_CXX_FLAGS=${flags[*]-}"
    expect 0 cmake --build cmake-build
    expect 0 ./cmake-build/stranger
    expect_text out '^-1 0 0.5 0\.1\.'
else
    skip_part "no C++ compiler here"
fi

# ---- pixels ----
# shellcheck disable=SC2046
expect 0 cc -std=c99 -Wall -Wextra -Wpedantic -Werror ${flags[@]+"${flags[@]}"} "$sources/examples/classify_pixels.c" \
    -o pixels $(package --cflags --libs convoy)
yes 'shades of grey, blue and green' | head -c 3600 >frame.rgb
{ printf 'P6\n40 30\n255\n' && cat frame.rgb; } >frame.ppm
expect 0 ./example run/model_best.safetensors frame.ppm
head -n 1 out >wanted
cat frame.rgb frame.rgb >frames.rgb
expect_frames() { # COMMAND...: two frames give two times the answer for the file
    expect 0 "$@" run/model_best.safetensors 40 30 rgb24 <frames.rgb
    checks=$((checks + 1))
    cat wanted wanted | cmp -s - out || fail "pixels get another answer than the file with them: $(cat out)"
}
expect_frames ./pixels
if command -v c++ >/dev/null; then
    # shellcheck disable=SC2046
    expect 0 c++ -std=c++11 -Wall -Wextra -Wpedantic -Werror ${flags[@]+"${flags[@]}"} -x c++ \
        "$sources/examples/classify_pixels.c" -x none -o pixels_cc $(package --cflags --libs convoy)
    expect_frames ./pixels_cc
fi
# ---- features ----
# shellcheck disable=SC2046
expect 0 cc -std=c99 -Wall -Wextra -Wpedantic -Werror ${flags[@]+"${flags[@]}"} "$sources/examples/nearest_images.c" \
    -o nearest $(package --cflags --libs convoy) -lm
expect 0 ./nearest run/model_best.safetensors "$picture" frame.ppm "$picture"
expect_text out '^1.000  .*jpg'
expect 66 ./nearest run/model_best.safetensors "$picture" missing.jpg
head -c 100 frame.rgb >part.rgb
expect 65 ./pixels run/model_best.safetensors 40 30 rgb24 <part.rgb
expect 2 ./pixels run/model_best.safetensors 0 30 rgb24 </dev/null
expect_text err '0 x 30'
echo text >text.jpg
expect 65 ./example run/model_best.safetensors text.jpg
expect_text err 'text.jpg'
expect 66 ./example missing.safetensors "$picture"
expect 2 ./example
finish
