#!/bin/sh
# A machine whose only libraries of NVIDIA's are Python's packages below /opt/NAME/.venv, without a variable that leads
# there: cuDNN, cuBLASLt, NVRTC and NCCL are found, and where one is not, the places are told. In a view of the file system
# of its own, whose packages are links to what is installed here.
set -eu
source=$1
build=${CONVOY_BUILD:?the build folder}
driver=$build/tests/fake_driver # libcuda.so.1, which comes with a driver and not with packages
engine=$build/tests/cuda/test_engine

if [ "${2:-}" != inside ]; then
    skip() {
        echo "skipped: $*"
        exit 77
    }
    root=
    cublaslt=$(grep -aoE 'libcublasLt\.so\.[0-9]+' "$build/libconvoy_cuda.so" 2>/dev/null | head -n 1) # of its CUDA
    for folder in "${CUDA_HOME:-/usr/local/cuda}/lib64" /usr/local/cuda*/lib64; do
        [ ! -e "$folder/libcudnn_graph.so.9" ] || [ ! -e "$folder/libnccl.so.2" ] ||
            [ ! -e "$folder/${cublaslt:-libcublasLt.so}" ] || root=$folder
    done
    [ -n "$root" ] && [ -e "$build/libconvoy_cuda.so" ] && [ -e "$driver/libcuda.so.1" ] && [ -x "$engine" ] ||
        skip "the module's CUDA with cuDNN and NCCL is not installed here, or the module was not built"
    alone='unshare -m'
    $alone true 2>/dev/null || alone='unshare -rm'
    $alone mount -t tmpfs tmpfs /opt 2>/dev/null || skip 'this process may not have a view of the file system of its own'
    case $(realpath "$build") in /usr/local/* | /opt/*) skip 'the build folder would be hidden' ;; esac
    work=$(mktemp -d /tmp/convoy-wheels.XXXXXX)
    trap 'rm -rf "$work"' EXIT
    # The mounts end with the process that made them.
    $alone sh "$0" "$source" inside "$root" "$work"
    exit 0
fi

root=$3 work=$4 build=$(realpath "$build")
fail() {
    echo "FAILED: $*"
    exit 1
}
mkdir "$work/real"
mount --bind "$(realpath "$root")" "$work/real"
mount -t tmpfs tmpfs /usr/local
mount -t tmpfs tmpfs /opt
packages=/opt/tool/.venv/lib/python3.12/site-packages/nvidia
mkdir -p $packages/cudnn/lib $packages/cu13/lib $packages/nccl/lib
ln -s "$work"/real/libcudnn*.so.9 $packages/cudnn/lib
ln -s "$work"/real/libcublas*.so.1* "$work"/real/libnvrtc*.so.1* $packages/cu13/lib
ln -s "$work"/real/libnccl.so.2 $packages/nccl/lib

alone() { # COMMAND...: with nothing in the environment but the driver, and what the loader has to say in $work/loaded.*
    rm -f "$work"/loaded.*
    env -i LD_LIBRARY_PATH="$driver" LD_DEBUG=files LD_DEBUG_OUTPUT="$work/loaded" OMP_NUM_THREADS=1 "$@" >"$work/out" 2>&1
}
loaded() { # PATTERN: of a file below the packages
    grep -q "calling init: $packages/$1" "$work"/loaded.* || fail "no $1 was loaded: $(cat "$work/out")"
}
plan() {
    alone "$build/convoy" info resnet18 --plan --runs 0 --image-size 32 --mode train --precision fp16 \
        --device "cuda:describe=$source/tests/cuda/h200.json"
}
plan || fail "no plan: $(cat "$work/out")"
grep -q 'cudnn engine' "$work/out" || fail "no convolution of cuDNN's: $(cat "$work/out")"
loaded cudnn/lib/libcudnn_graph.so.9
loaded cudnn/lib/libcudnn_engines_runtime_compiled.so.9
loaded cu13/lib/libcublasLt.so.1
loaded cu13/lib/libnvrtc.so.1
loaded cu13/lib/libnvrtc-builtins.so.1
alone PATH=/usr/bin "$engine" || fail "the tests of the engine: $(cat "$work/out")"
loaded nccl/lib/libnccl.so.2

for part in cudnn/libcudnn cu13/libcublasLt; do
    mkdir "$work/away"
    mv "$packages/${part%/*}/lib/${part#*/}"* "$work/away"
    code=0
    plan || code=$?
    [ $code = 69 ] || fail "exit code $code without $part"
    grep -q "is not to be found: looked for ${part#*/}.* where the loader looks and in .*$packages/cu13/lib" "$work/out" ||
        fail "it is not told where $part was looked for: $(cat "$work/out")"
    mv "$work"/away/* "$packages/${part%/*}/lib"
    rmdir "$work/away"
done
plan || fail "no plan after all: $(cat "$work/out")"
echo "what lies in Python's packages alone is found"
