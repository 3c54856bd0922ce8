# Kernels are compiled once for each instruction set, which their file's name ends with, and chosen at run time.

# The options for a source file, a list; empty for those that every processor runs.
function(convoy_instruction_options source out)
  set(avx2 -mavx2 -mfma -mf16c)
  set(avx512 -mavx512f -mavx512bw -mavx512dq -mavx512vl ${avx2} -mprefer-vector-width=512)
  if(source MATCHES "_(avx512|amx)_bf16\\.c$")
    set(${out} -mavx512bf16 ${avx512} -ffp-contract=fast PARENT_SCOPE)
  elseif(source MATCHES "_(avx512_vnni|amx_int8)\\.c$") # not contracted: every device gives the same bytes
    set(${out} -mavx512vnni ${avx512} -ffp-contract=off PARENT_SCOPE)
  elseif(source MATCHES "(_avx_vnni|/int8_avx2)\\.c$") # likewise; vpdpbusd is written out
    set(${out} ${avx2} -ffp-contract=off PARENT_SCOPE)
  elseif(source MATCHES "_avx512\\.c$")
    set(${out} ${avx512} -ffp-contract=fast PARENT_SCOPE)
  elseif(source MATCHES "_avx2\\.c$")
    set(${out} ${avx2} -ffp-contract=fast PARENT_SCOPE)
  else()
    set(${out} "" PARENT_SCOPE)
  endif()
endfunction()
