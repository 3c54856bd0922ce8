#!/bin/sh
# cmake/find_cuda.cmake, with an nvcc that only answers what it is asked, and headers that only say their version: the
# layouts of a toolkit, of Debian and of conda; two CUDAs on one machine; and what is said where something is missing.
set -eu
source=$1
cmake=$(command -v cmake) || { echo 'skipped: no cmake'; exit 77; }
work=$(mktemp -d /tmp/convoy-layouts.XXXXXX)
trap 'rm -rf "$work"' EXIT
unset VIRTUAL_ENV CONDA_PREFIX CUDA_HOME

nvcc() { # FILE RELEASE INCLUDES LIBRARIES
    mkdir -p "$(dirname "$1")"
    cat >"$1" <<END
#!/bin/sh
case \$1 in
--version) echo 'Cuda compilation tools, release $2, V$2.100' ;;
--dryrun) printf '#$ TOP=%s\n#$ INCLUDES=%s\n#$ LIBRARIES=%s\n#$ gcc -I/elsewhere\n' / '$3' '$4' >&2 ;;
esac
END
    chmod +x "$1"
}
runtime() { # INCLUDE LIB MAJOR
    mkdir -p "$1" "$2/stubs"
    printf '#define CUDART_VERSION  %d040\n' "$3" >"$1/cuda_runtime_api.h"
    printf '#define CUBLAS_VER_MAJOR %d\n' "$3" >"$1/cublas_api.h"
    touch "$1/cublasLt.h" "$2/libcudart_static.a" "$2/stubs/libcuda.so"
}
cudnn() { # INCLUDE MINOR
    mkdir -p "$1"
    printf '#define CUDNN_MAJOR 9\n#define CUDNN_MINOR %d\n' "$2" >"$1/cudnn_version.h"
    touch "$1/cudnn_graph.h"
}

mkdir "$work/project"
cat >"$work/project/CMakeLists.txt" <<END
cmake_minimum_required(VERSION 3.18)
project(layouts NONE)
set(CMAKE_FIND_USE_CMAKE_SYSTEM_PATH OFF) # only what is here may be found
set(CMAKE_FIND_LIBRARY_PREFIXES lib)
set(CMAKE_FIND_LIBRARY_SUFFIXES .so .a)
include($source/cmake/find_cuda.cmake)
foreach(name CUDA_MISSING CUDA_RELEASE CUDART_INCLUDE CUDART_STATIC CUBLASLT_INCLUDE CUDNN_INCLUDE CUDA_STUB)
  message("\${name}=\${\${name}}")
endforeach()
END
configure() { # BUILD [-DNAME=VALUE ...]
    build=$1
    shift
    PATH=$work/other/bin "$cmake" -G 'Unix Makefiles' -DCMAKE_MAKE_PROGRAM=/bin/true -S "$work/project" \
        -B "$work/$build" "$@" >"$work/out" 2>&1 || {
        cat "$work/out"
        exit 1
    }
}
expect() { # LINE...
    for line; do
        grep -qxF -- "$line" "$work/out" || {
            echo "FAILED: no line $line in"
            cat "$work/out"
            exit 1
        }
    done
}

# A toolkit, with cuDNN unpacked into it.
toolkit=$work/toolkit-12.4
runtime "$toolkit/targets/x86_64-linux/include" "$toolkit/targets/x86_64-linux/lib" 12
cudnn "$toolkit/targets/x86_64-linux/include" 9
ln -s targets/x86_64-linux/include "$toolkit/include"
nvcc "$toolkit/bin/nvcc" 12.4 "\"-I$toolkit/bin/../targets/x86_64-linux/include\"  " \
    "  \"-L$toolkit/bin/../targets/x86_64-linux/lib/stubs\" \"-L$toolkit/bin/../targets/x86_64-linux/lib\""
configure toolkit "-DNVCC=$toolkit/bin/nvcc"
below=$toolkit/targets/x86_64-linux
expect CUDA_MISSING= CUDA_RELEASE=12.4 "CUDART_INCLUDE=$below/include" "CUDART_STATIC=$below/lib/libcudart_static.a" \
    "CUBLASLT_INCLUDE=$below/include" "CUDNN_INCLUDE=$below/include" "CUDA_STUB=$below/lib/stubs/libcuda.so"

# Debian's: libraries below the name of the architecture, which nvcc alone tells; and another CUDA on PATH.
debian=$work/debian/usr
runtime "$debian/include" "$debian/lib/x86_64-linux-gnu" 12
cudnn "$debian/include" 8
nvcc "$debian/bin/nvcc" 12.4 '' " -L$debian/lib/x86_64-linux-gnu/stubs -L$debian/lib/x86_64-linux-gnu"
runtime "$work/other/include" "$work/other/lib" 13
cudnn "$work/other/include" 14
nvcc "$work/other/bin/nvcc" 13.0 "\"-I$work/other/include\" " "\"-L$work/other/lib/stubs\" \"-L$work/other/lib\""
configure debian "-DNVCC=$debian/bin/nvcc"
expect CUDA_MISSING= "CUDART_INCLUDE=$debian/include" "CUDNN_INCLUDE=$debian/include" \
    "CUDART_STATIC=$debian/lib/x86_64-linux-gnu/libcudart_static.a" \
    "CUDA_STUB=$debian/lib/x86_64-linux-gnu/stubs/libcuda.so"

# A folder that was configured with one nvcc, and then with another: nothing of the first is left, but for what was named.
CUDA_HOME=$work/other configure both "-DCUDNN_INCLUDE=$debian/include"
expect CUDA_MISSING= CUDA_RELEASE=13.0 "CUDART_INCLUDE=$work/other/include" "CUDNN_INCLUDE=$debian/include"
configure both "-DNVCC=$toolkit/bin/nvcc"
expect CUDA_MISSING= CUDA_RELEASE=12.4 "CUDART_INCLUDE=$below/include" "CUDART_STATIC=$below/lib/libcudart_static.a" \
    "CUDNN_INCLUDE=$debian/include"

# Named is also what had been found: with the next nvcc, and the one after that.
for named in CUDNN_INCLUDE CUDNN_INCLUDE:PATH; do
    rm -rf "$work/again"
    CUDA_HOME=$work/other configure again
    expect "CUDNN_INCLUDE=$work/other/include"
    configure again "-DNVCC=$toolkit/bin/nvcc" "-D$named=$work/other/include"
    expect "CUDART_INCLUDE=$below/include" "CUDNN_INCLUDE=$work/other/include"
    configure again "-DNVCC=$debian/bin/nvcc"
    expect "CUDART_INCLUDE=$debian/include" "CUDNN_INCLUDE=$work/other/include"
done

# cuDNN and cuBLASLt of Python's packages, in the environment that is active.
mv "$below/include/cudnn_graph.h" "$below/include/cublasLt.h" "$work"
mv "$work/other/include" "$work/hidden"
packages=$work/venv/lib/python3.12/site-packages/nvidia
cudnn "$packages/cudnn/include" 10
mkdir -p "$packages/cublas/include"
printf '#define CUBLAS_VER_MAJOR 12\n' >"$packages/cublas/include/cublas_api.h"
touch "$packages/cublas/include/cublasLt.h"
VIRTUAL_ENV=$work/venv configure packages "-DNVCC=$toolkit/bin/nvcc"
expect CUDA_MISSING= "CUDNN_INCLUDE=$packages/cudnn/include" "CUBLASLT_INCLUDE=$packages/cublas/include"

# What is missing is named, and how to name it.
configure missing "-DNVCC=$toolkit/bin/nvcc"
expect "CUDA_MISSING=for $toolkit/bin/nvcc of CUDA 12.4 were not found: cublasLt.h (-DCUBLASLT_INCLUDE=FOLDER), \
cudnn_graph.h (-DCUDNN_INCLUDE=FOLDER)"
configure absent "-DNVCC=$work/nowhere/nvcc"
expect "CUDA_MISSING=$work/nowhere/nvcc --version names no release"

# Headers of another CUDA, and of a cuDNN that is too old.
configure runtime "-DNVCC=$debian/bin/nvcc" "-DCUDART_INCLUDE=$work/hidden"
expect "CUDA_MISSING=$debian/bin/nvcc is of CUDA 12.4, and the runtime's headers in $work/hidden of CUDA 13 \
(-DCUDART_INCLUDE=FOLDER)"
configure cublas "-DNVCC=$debian/bin/nvcc" "-DCUBLASLT_INCLUDE=$work/hidden"
expect "CUDA_MISSING=$debian/bin/nvcc is of CUDA 12.4, and cublasLt.h in $work/hidden of CUDA 13 \
(-DCUBLASLT_INCLUDE=FOLDER)"
cudnn "$debian/include" 0
configure old "-DNVCC=$debian/bin/nvcc"
expect "CUDA_MISSING=the headers in $debian/include are of cuDNN 9.0, and 9.8 is the oldest that will do \
(-DCUDNN_INCLUDE=FOLDER)"
nvcc "$debian/bin/nvcc" 11.8 '' " -L$debian/lib/x86_64-linux-gnu"
configure older "-DNVCC=$debian/bin/nvcc"
expect "CUDA_MISSING=$debian/bin/nvcc is of CUDA 11.8, and 12.1 is the oldest that will do"
echo 'passed'
