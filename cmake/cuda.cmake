# The CUDA module, libconvoy_cuda.so, which the library loads at run time: built where nvcc and the headers of the CUDA
# runtime, cuDNN and cuBLASLt are found. It is linked with none of their shared libraries.
file(GLOB GPU_SOURCES CONFIGURE_DEPENDS "${CMAKE_SOURCE_DIR}/src/backend/cuda/*.c"
     "${CMAKE_SOURCE_DIR}/src/backend/cuda/cudnn/*.c")
file(GLOB GPU_KERNELS CONFIGURE_DEPENDS "${CMAKE_SOURCE_DIR}/src/backend/cuda/kernels/*.cu")
# Files of the library that the module needs copies of.
set(GPU_BASE base/cache base/error base/file base/watchdog base/resources base/log base/memory base/parallel base/rng base/rng_normal base/system base/types base/utf8
    backend/describe backend/layout graph/graph graph/order graph/rewrite graph/rewrite_norms graph/rewrite_patterns ops/anchors)
list(TRANSFORM GPU_BASE PREPEND "${CMAKE_SOURCE_DIR}/src/")
list(TRANSFORM GPU_BASE APPEND ".c")

set(GPU_EXPORTS ${CMAKE_SOURCE_DIR}/cmake/cuda_module.map)

option(CONVOY_CUDA "Build the CUDA module where nvcc is found" ON)
if(CONVOY_CUDA)
  include(cmake/find_cuda.cmake)
else()
  set(CUDA_MISSING "CONVOY_CUDA=OFF")
endif()
if(CUDA_MISSING)
  message(STATUS "No CUDA module: ${CUDA_MISSING}")
  return()
endif()

# ---- kernels ----
option(CONVOY_CUDA_OLDER "Kernels for GPUs before Ampere too: Turing, and with CUDA 12 Volta" OFF)
set(GPU_MIN 80)
set(GPU_OLDER_FLAGS)
if(CONVOY_CUDA_OLDER)
  set(GPU_MIN 75)
  set(GPU_OLDER_FLAGS -gencode=arch=compute_75,code=sm_75)
  if(CUDA_RELEASE VERSION_LESS 13)
    set(GPU_MIN 70)
    list(PREPEND GPU_OLDER_FLAGS -gencode=arch=compute_70,code=sm_70)
  endif()
endif()
option(CONVOY_CUDA_LINEINFO "Line numbers in GPU kernels, for profilers" OFF)
# One PTX for all: nothing in the kernels asks for more than sm_80 has, and from compute_80's and compute_90's ptxas makes
# the same instructions for sm_90 (compared kernel by kernel, CUDA 13.0). For another one nvcc would read all files again.
# The host's side of them must not need C++'s library.
set(NVCC_FLAGS -std=c++20 -O3 -Xcompiler=-fPIC,-fvisibility=hidden,-fno-exceptions,-fno-threadsafe-statics
    -Xptxas=-warn-spills,-warn-lmem-usage
    ${GPU_OLDER_FLAGS} -gencode=arch=compute_80,code=[sm_80,sm_90,compute_80]
    -I${CMAKE_SOURCE_DIR}/src -I${CMAKE_SOURCE_DIR}/include)
# Names within an object that are the same in every build in this folder: of temporary files, and a seed for each kernel
# file. In the PTX of a file with static functions that have shared variables nvcc also writes a hash of its whole path.
execute_process(COMMAND ${NVCC} --help OUTPUT_VARIABLE NVCC_HELP ERROR_QUIET)
foreach(option objdir-as-tempdir frandom-seed)
  string(FIND "${NVCC_HELP}" "--${option}" GPU_HAS_${option})
endforeach()
string(FIND "${NVCC_HELP}" "--compress-mode" GPU_HAS_compress) # since CUDA 12.8
if(NOT GPU_HAS_compress EQUAL -1)
  list(APPEND NVCC_FLAGS --compress-mode=size)
endif()
if(NOT GPU_HAS_objdir-as-tempdir EQUAL -1)
  list(APPEND NVCC_FLAGS --objdir-as-tempdir)
endif()
if(CONVOY_CUDA_LINEINFO) # a third of the module
  list(APPEND NVCC_FLAGS -lineinfo)
endif()
if(CONVOY_WERROR)
  list(APPEND NVCC_FLAGS --Werror=all-warnings)
endif()
if(POLICY CMP0116) # nvcc names its output by the whole path, which ninja would take for another file
  cmake_policy(SET CMP0116 NEW)
endif()
# Another build folder of the same sources has the same kernels: it is asked to bring them up to date, and they are taken
# from there instead of being compiled twice.
set(CONVOY_CUDA_KERNELS "" CACHE PATH "The build folder whose GPU kernels are used; empty: this one's")
set(KERNEL_DIR ${CMAKE_BINARY_DIR}/cuda)
if(CONVOY_CUDA_KERNELS AND NOT IS_DIRECTORY ${CONVOY_CUDA_KERNELS}/cuda) # it has no CUDA module
  set_property(CACHE CONVOY_CUDA_KERNELS PROPERTY VALUE "")
elseif(CONVOY_CUDA_KERNELS)
  set(KERNEL_DIR ${CONVOY_CUDA_KERNELS}/cuda)
endif()
set(GPU_OBJECTS)
foreach(source ${GPU_KERNELS})
  get_filename_component(name ${source} NAME_WE)
  set(object ${KERNEL_DIR}/${name}.o)
  list(APPEND GPU_OBJECTS ${object})
  if(CONVOY_CUDA_KERNELS)
    continue()
  endif()
  set(seed)
  if(NOT GPU_HAS_frandom-seed EQUAL -1)
    set(seed --frandom-seed ${name})
  endif()
  add_custom_command(
    OUTPUT ${object}
    COMMAND ${NVCC} ${NVCC_FLAGS} ${seed} -MD -MF ${object}.d -c ${source} -o ${object}
    DEPENDS ${source}
    DEPFILE ${object}.d
    COMMENT "Building CUDA object ${name}.o"
    VERBATIM)
endforeach()
if(CONVOY_CUDA_KERNELS)
  add_custom_target(cuda_kernels COMMAND ${CMAKE_COMMAND} --build ${CONVOY_CUDA_KERNELS} --target cuda_kernels
    BYPRODUCTS ${GPU_OBJECTS})
else()
  add_custom_target(cuda_kernels DEPENDS ${GPU_OBJECTS})
  file(MAKE_DIRECTORY ${KERNEL_DIR})
endif()

# ---- the module ----
set(GPU_MODULE_SOURCES ${GPU_SOURCES})
if(NCCL_INCLUDE)
  list(FILTER GPU_MODULE_SOURCES EXCLUDE REGEX "/nccl_stub\\.c$")
  set(GPU_NCCL_INCLUDE ${NCCL_INCLUDE})
else()
  message(STATUS "The CUDA module is built without NCCL: nccl.h is not here")
  list(FILTER GPU_MODULE_SOURCES EXCLUDE REGEX "/nccl\\.c$")
  set(GPU_NCCL_INCLUDE)
endif()
add_library(convoy_cuda MODULE ${GPU_MODULE_SOURCES} ${GPU_BASE} ${GPU_OBJECTS})
set_source_files_properties(${GPU_OBJECTS} PROPERTIES EXTERNAL_OBJECT TRUE GENERATED TRUE)
add_dependencies(convoy_cuda cuda_kernels)
target_include_directories(convoy_cuda PRIVATE include src)
target_compile_definitions(convoy_cuda PRIVATE GPU_MIN_CAPABILITY=${GPU_MIN})
target_include_directories(convoy_cuda SYSTEM PRIVATE ${CUDART_INCLUDE} ${CUBLASLT_INCLUDE} ${CUDNN_INCLUDE}
  ${GPU_NCCL_INCLUDE})
target_link_libraries(convoy_cuda PRIVATE convoy_flags OpenMP::OpenMP_C Threads::Threads ${CUDART_STATIC} m dl rt)
target_link_options(convoy_cuda PRIVATE -Wl,--exclude-libs,ALL -Wl,--version-script=${GPU_EXPORTS})
set_target_properties(convoy_cuda PROPERTIES LINK_DEPENDS ${GPU_EXPORTS} INSTALL_RPATH "$ORIGIN" BUILD_WITH_INSTALL_RPATH ON)
if(NOT CMAKE_BUILD_TYPE STREQUAL "Debug")
  target_link_options(convoy_cuda PRIVATE -Wl,--no-undefined)
endif()
install(TARGETS convoy_cuda LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/convoy COMPONENT cuda)
