#!/bin/bash
# cmake --install, the folder moved, then a stranger's programs, the examples among them, against the installed library
# with pkg-config and with CMake, as C99 and as C++11; every public header compiles alone.
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

# ---- the examples, as they are installed: NAME is C, NAME_cc is C++ ----
flags=(-Wall -Wextra -Wpedantic -Werror)
# A program with a sanitized library needs the sanitizer's runtime first.
sanitized && flags+=(-fsanitize=address,undefined)
examples=$(find "$prefix/share/doc" -type d -name examples)
for source in "$examples"/*.c; do
    name=$(basename "$source" .c)
    # shellcheck disable=SC2046
    expect 0 cc -std=c99 "${flags[@]}" "$source" -o "$name" $(package --cflags --libs convoy) -lm
    # shellcheck disable=SC2046
    command -v c++ >/dev/null && expect 0 c++ -std=c++11 "${flags[@]}" -x c++ "$source" -x none -o "${name}_cc" \
        $(package --cflags --libs convoy)
done
each() { # NAME: the programs of an example
    echo "./$1"
    [ ! -x "$1_cc" ] || echo "./$1_cc"
}
export LD_LIBRARY_PATH=$libdir
make_shapes data 2 1
picture=$(find data/val -name '*.jpg' | sort | head -n 1)
expect 0 "$prefix/bin/convoy" -q train data --arch resnet18 --image-size 32 --batch-size 10 --epochs 1 --workspace run
for example in $(each classify_memory); do
    expect 0 "$example" run/model_best.safetensors "$picture"
    expect_text out '^ *[0-9.]+ %  '
done
# The program gives the same answer.
class=$(head -n 1 out | sed 's/.*%  //')
expect 0 "$prefix/bin/convoy" -q classify "$picture" --weights run/model_best.safetensors --format csv --topk 1
expect_text out ",1,[0-9]+,$class,"
expect 0 "$prefix/bin/convoy" -q convert run/model_best.safetensors model.pth
expect 0 ./classify_memory model.pth "$picture"
expect_text out "  $class\$"
# A file that torchvision's network was saved to, without any word of Convoy in it.
if ${CONVOY_PYTHON:-/usr/bin/python3} -c 'import torch, torchvision' 2>/dev/null; then
    expect 0 ${CONVOY_PYTHON:-/usr/bin/python3} -c 'import torch, torchvision
torch.save(torchvision.models.resnet18(num_classes=4).state_dict(), "torchvision.pth")'
    expect 0 ./classify_memory torchvision.pth "$picture"
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
cat >CMakeLists.txt <<EOF
cmake_minimum_required(VERSION 3.18)
project(stranger LANGUAGES C CXX)
find_package(convoy 0.1 REQUIRED)
set(CMAKE_C_STANDARD 99)
set(CMAKE_CXX_STANDARD 11)
add_compile_options(${flags[*]})
add_executable(stranger defaults.cc)
target_link_libraries(stranger PRIVATE convoy::convoy)
file(GLOB examples "$examples/*.c")
foreach(example \${examples})
  get_filename_component(name \${example} NAME_WE)
  add_executable(\${name} \${example})
  target_link_libraries(\${name} PRIVATE convoy::convoy m)
endforeach()
EOF
if command -v c++ >/dev/null; then
    sanitized && link=(-DCMAKE_EXE_LINKER_FLAGS=-fsanitize=address,undefined)
    expect 0 cmake -S . -B cmake-build -DCMAKE_PREFIX_PATH="$prefix" ${link[@]+"${link[@]}"}
    expect 0 cmake --build cmake-build
    expect 0 ./cmake-build/stranger
    expect_text out '^-1 0 0.5 0\.1\.'
    expect 0 ./cmake-build/classify_memory run/model_best.safetensors "$picture"
    expect_text out '^ *[0-9.]+ %  '
else
    skip_part "no C++ compiler here"
fi

# ---- pixels ----
yes 'shades of grey, blue and green' | head -c 3600 >frame.rgb
{ printf 'P6\n40 30\n255\n' && cat frame.rgb; } >frame.ppm
expect 0 ./classify_memory run/model_best.safetensors frame.ppm
head -n 1 out >wanted
cat frame.rgb frame.rgb >frames.rgb
for example in $(each classify_pixels); do # two frames give two times the answer for the file
    expect 0 "$example" run/model_best.safetensors 40 30 rgb24 <frames.rgb
    checks=$((checks + 1))
    cat wanted wanted | cmp -s - out || fail "$example: pixels get another answer than the file with them: $(cat out)"
done
head -c 100 frame.rgb >part.rgb
expect 65 ./classify_pixels run/model_best.safetensors 40 30 rgb24 <part.rgb
expect 2 ./classify_pixels run/model_best.safetensors 0 30 rgb24 </dev/null
expect_text err '0 x 30'

# ---- features ----
for example in $(each nearest_images); do
    expect 0 "$example" run/model_best.safetensors "$picture" frame.ppm "$picture"
    expect_text out '^1.000  .*jpg'
done
expect 66 ./nearest_images run/model_best.safetensors "$picture" missing.jpg

# ---- objects on frames ----
expect 0 "$prefix/bin/convoy" -q dataset shapes boxes --boxes --train-images 2 --val-images 1 --image-size 96 --classes 2
expect 0 "$prefix/bin/convoy" -q train boxes --arch ssd320 --image-size 64 --batch-size 2 --steps 1 --training-only \
    --workspace detector
for example in $(each detect_draw); do
    expect 0 "$example" detector/checkpoint.safetensors 40 30 0 <frames.rgb
    expect_text err '^0: [0-9.]+ [a-z]+ '
    expect_text err '^1: [0-9.]+ [a-z]+ '
    cp out drawn.rgb
    checks=$((checks + 1))
    [ "$(wc -c <drawn.rgb)" = 7200 ] || fail "$example: two frames of 3600 bytes became $(wc -c <drawn.rgb)"
    # The corner of the first box is red, and frames without a box stay as they are.
    at=$(awk 'NR == 1 { print (int($5) * 40 + int($4)) * 3 }' err)
    checks=$((checks + 1))
    [ "$(tail -c +$((at + 1)) drawn.rgb | head -c 3 | od -An -tu1 | tr -s ' ')" = ' 255 0 0' ] ||
        fail "$example: no box at $at: $(head -n 1 err)"
    expect 0 "$example" detector/checkpoint.safetensors 40 30 1 <frames.rgb
    checks=$((checks + 1))
    cmp -s out frames.rgb || fail "$example: frames without objects are changed"
done
expect 65 ./detect_draw detector/checkpoint.safetensors 40 30 0.5 <part.rgb
expect 65 ./detect_draw run/model_best.safetensors 40 30 0.5 <frames.rgb
expect_text err 'classifies'

# ---- a training with a callback: in steps, ended by the program when it is good enough ----
for example in $(each train_callback); do
    expect 0 "$example" data "${example}_run" 0 arch=resnet18 image-size=32 batch-size=10 epochs=50 warmup=0
    expect_text out '^  after 1 of 2 steps: [0-9.]+ %$'
    expect_text out '^epoch 0: loss [0-9.]+, [0-9.]+ % of the validation images, the best so far$'
    expect_text out '_run/model_best.safetensors: [0-9.]+ % after 1 epoch$'
    expect 0 ./classify_memory "${example}_run/model_best.safetensors" "$picture"
done
expect 2 ./train_callback data other 0 no-such-option=1
expect_text err 'no-such-option'
expect 66 ./train_callback nowhere other 0
expect_text err 'nowhere'

# ---- what cannot be done ----
echo text >text.jpg
expect 65 ./classify_memory run/model_best.safetensors text.jpg
expect_text err 'text.jpg'
expect 66 ./classify_memory missing.safetensors "$picture"
expect 2 ./classify_memory
finish
