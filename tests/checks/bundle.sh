#!/bin/sh
# scripts/bundle: what it makes runs from another place with an empty environment, and takes nothing from where it was
# made. The emulated module stands in for the GPU's.
set -eu
source=$1
build=${CONVOY_BUILD:?the build folder}
emulated=$build/tests/emulated_cuda/libconvoy_cuda_emulated.so
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() {
    echo "FAILED: $*"
    exit 1
}
expect() { # CODE COMMAND...: output to $work/out
    wanted=$1
    shift
    code=0
    "$@" >"$work/out" 2>&1 || code=$?
    [ "$code" = "$wanted" ] || {
        tail -n 20 "$work/out"
        fail "exit code $code instead of $wanted: $*"
    }
}
says() {
    grep -q -- "$1" "$work/out" || {
        cat "$work/out"
        fail "no line has '$1'"
    }
}

# ---- made, and moved away ----
expect 2 "$source/scripts/bundle"
expect 1 "$source/scripts/bundle" "$work/no-build" "$work"
says 'holds no Release build'
expect 0 "$source/scripts/bundle" --archive "$work/first" "$build"
cat "$work/out"
says 'first.tar.xz: [0-9]* MiB$'
[ "$(tar -tJf "$work/first.tar.xz" | grep -c '^first/bin/convoy$')" = 1 ] || fail 'the archive holds no program'
[ "$(du -sk "$work/first.tar.xz" | cut -f 1)" -le 16384 ] || fail 'the archive has more than 16 MiB'
rm "$work/first.tar.xz"
says 'MiB, convoy .* glibc 2\.[0-9]* or newer'
expect 1 "$source/scripts/bundle" "$work/first" "$build"
says 'is not empty'
mkdir "$work/else where"
mv "$work/first" "$work/else where/bundle"
bundle="$work/else where/bundle"
[ "$(du -sk "$bundle" | cut -f 1)" -le 61440 ] || fail 'more than 60 MiB'

# ---- nothing but the C library comes from outside ----
programs=0
for program in "$bundle"/bin/* "$bundle"/tests/test_* "$bundle"/bench/*; do
    case $program in *.py) continue ;; esac
    programs=$((programs + 1))
    expect 0 env -i LD_TRACE_LOADED_OBJECTS=1 "$program"
    # "name => path (address)"
    awk '$2 == "=>" { sub(/^[^>]*=> /, ""); sub(/ \(0x[0-9a-f]*\)$/, ""); print }' "$work/out" >"$work/loaded"
    grep -q /libc.so "$work/loaded" || fail "nothing is said of ${program##*/}"
    while IFS= read -r path; do
        case $path in
        "$bundle"/*) ;;
        */libc.so.* | */libm.so.* | */libdl.so.* | */libpthread.so.* | */librt.so.*) ;;
        *) fail "${program##*/} loads $path" ;;
        esac
    done <"$work/loaded"
done
[ "$programs" -ge 2 ] || fail 'there are no tests and benchmarks'
for library in "$bundle"/lib/*.so*; do
    if readelf -dW "$library" | grep -E 'NEEDED.*(libcuda|libcud|libcublas|libnv|libnccl)'; then
        fail "${library##*/} is linked with something of NVIDIA's"
    fi
    if readelf -SW "$library" | grep -q ' \.debug_info '; then
        fail "${library##*/} is not stripped"
    fi
done
"$source/scripts/check-elf" --foreign '^lib[^c]|^libc[^o]' "$bundle" || fail 'the paths of what it holds'

# ---- it works ----
cp "$emulated" "$bundle/lib/libconvoy_cuda.so"
chmod -R a-w "$bundle"
cd "$work"
alone() { # in an empty environment, but for what keeps tests from disturbing each other
    env -i OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive CONVOY_CACHE_DIR="$work/cache" CONVOY_KERNELS=first PATH="$PATH" \
        HOME="$work" "$@"
}
expect 0 alone "$bundle/bin/convoy" info --format json
says '"emulated GPU'
expect 0 alone "$bundle/bin/convoy" -q dataset shapes data --train-per-class 1 --val-per-class 1 --image-size 40
for device in cpu cuda:0; do
    expect 0 alone "$bundle/bin/convoy" -q train data --arch resnet18 --image-size 32 --batch-size 5 --epochs 1 \
        --workspace "$work/run-$device" --device $device --precision fp32
done
expect 0 alone "$bundle/bin/convoy" -q classify data/val/*/*.jpg --weights "$work/run-cuda:0/checkpoint.safetensors" \
    --device cpu --format csv
# The kernel checker, with some of the bundle's shapes: the suite has a test of its own for all of them.
mkdir -p some/shapes none
grep -E '^(linear|pool|gate)' "$bundle/tests/shapes/odd.txt" >some/shapes/odd.txt
kernels() { # FOLDER: whose shapes; to $work/out
    alone CONVOY_CUDA_MODULE="$bundle/lib/libconvoy_cuda.so" CONVOY_TEST_SOURCE="$1" "$bundle/tests/test_kernels" \
        --device cuda:0 >"$work/out" 2>&1 || true
}
kernels "$work/some"
says '  OK \] test_odd_shapes'
kernels "$work/none"
says 'FAILED *\] test_odd_shapes'

# ---- and says what it is ----
expect 0 alone "$bundle/scripts/gpu-check" build "$work/results"
says 'emulated GPU'
grep -q '"deviceName": *"emulated GPU"' "$work/results/gpu-properties.json" || fail "the GPU's properties are not written"
grep -q '"complete": true' "$work/results/gpu-build.json" || fail 'the step build is not complete'
chmod -R u+w "$bundle"
rm "$bundle/lib/libconvoy_cuda.so"
for step in build test bench peer; do
    expect 77 alone "$bundle/scripts/gpu-check" $step "$work/results"
    says "gpu-check $step: skipped: .*no CUDA module"
done
