# For scripts/portable: what is compiled as ever is linked by CONVOY_LINK, against an older glibc, and takes the libraries in
# CMAKE_PREFIX_PATH. libgcc is the compiler's own: its functions are part of what is linked.
set(CONVOY_LINK "" CACHE FILEPATH "The command that links")
execute_process(COMMAND ${CMAKE_C_COMPILER} -print-libgcc-file-name OUTPUT_VARIABLE libgcc OUTPUT_STRIP_TRAILING_WHITESPACE)
set(CMAKE_C_LINK_EXECUTABLE "${CONVOY_LINK} -pie <LINK_FLAGS> <OBJECTS> -o <TARGET> <LINK_LIBRARIES> ${libgcc}")
foreach(kind LIBRARY MODULE)
  set(CMAKE_C_CREATE_SHARED_${kind}
    "${CONVOY_LINK} -shared -Wl,-z,defs <LINK_FLAGS> -Wl,-soname,<TARGET_SONAME> -o <TARGET> <OBJECTS> <LINK_LIBRARIES> ${libgcc}")
endforeach()
# OpenMP is asked of the compiler and linked as the library built for it.
set(OpenMP_C_FLAGS -fopenmp)
set(OpenMP_C_LIB_NAMES gomp)
find_library(OpenMP_gomp_LIBRARY gomp REQUIRED)
foreach(library JPEG_LIBRARY=libjpeg.a PNG_LIBRARY=libpng16.a ZLIB_LIBRARY=libz.a YAJL_LIBRARY=libyajl.a
    PROTOBUF_C_LIBRARY=libprotobuf-c.a)
  string(REPLACE "=" ";" pair ${library})
  list(GET pair 0 name)
  list(GET pair 1 file)
  find_library(${name} ${file} REQUIRED)
endforeach()
