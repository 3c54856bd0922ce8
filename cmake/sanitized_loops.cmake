# Options of loops over numbers under the address and undefined sanitizers, where every access is several instructions:
# as other code is compiled there, they would be most of the time that tests take, and the kernels most of the time to
# compile. What they read and write the address sanitizer sees; loops over integers keep the other one, too.
set(SANITIZED_LOOPS "/(kernels|grouped_conv|tile_[a-z]+|weight_gradient|winograd)(_model)?_(base|avx2|avx512|(avx512|amx)_bf16)\\.c$"
    "/ref_f[0-9]+\\.c$")
list(JOIN SANITIZED_LOOPS "|" SANITIZED_LOOPS)

# As optimised as elsewhere: each of its forms has to give the same bits.
set_property(SOURCE src/base/rng_normal.c APPEND PROPERTY COMPILE_OPTIONS -fno-sanitize=undefined)
foreach(source ${CONVOY_SOURCES})
  if(source MATCHES "${SANITIZED_LOOPS}")
    set_property(SOURCE ${source} APPEND PROPERTY COMPILE_OPTIONS -O2 -fno-sanitize=undefined)
  endif()
  # GCC 12 puts vectors of 64 bytes at other addresses than multiples of 64 in frames that the address sanitizer keeps on
  # the heap (detect_stack_use_after_return; GCC's bug 110027).
  if(CMAKE_C_COMPILER_ID STREQUAL "GNU" AND source MATCHES "/((tile_gradient|tile_product|tile_window|grouped_conv)_(amx|model_avx512)_bf16|int8_tiles_(amx_int8|model_avx512_vnni)|winograd_avx512)\\.c$")
    set_property(SOURCE ${source} APPEND PROPERTY COMPILE_OPTIONS --param=asan-stack=0)
  endif()
endforeach()
