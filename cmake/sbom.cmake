# What the library is made with, in CycloneDX 1.5: convoy.cdx.json in the build folder, installed with the library. It has
# neither a time nor a random number, so that the same build writes the same bytes.

# sbom_version NAME HEADER MACRO...: NAME becomes the numbers of these macros, with dots between, or the text of the one.
function(sbom_version name header)
  set(parts)
  foreach(macro ${ARGN})
    file(STRINGS ${header} lines REGEX "#[ \t]*define[ \t]+${macro}[ \t]")
    if(NOT lines MATCHES "${macro}[ \t]+\"?([0-9][0-9.]*)")
      message(FATAL_ERROR "${header} does not say ${macro}")
    endif()
    list(APPEND parts ${CMAKE_MATCH_1})
  endforeach()
  list(JOIN parts "." version)
  set(${name} ${version} PARENT_SCOPE)
endfunction()

set(SBOM_COMPONENTS)
# sbom_add NAME VERSION LICENSE FILE SCOPE: a library; the names of licences are SPDX's. SCOPE: required, or optional where it
# is loaded at run time. FILE: the name by which it is linked or loaded.
function(sbom_add name version license file scope)
  string(CONCAT text "    {\n      \"type\": \"library\",\n      \"bom-ref\": \"${name}\",\n      \"name\": \"${name}\",\n"
    "      \"version\": \"${version}\",\n      \"scope\": \"${scope}\",\n"
    "      \"licenses\": [{\"expression\": \"${license}\"}],\n"
    "      \"properties\": [{\"name\": \"convoy:file\", \"value\": \"${file}\"}]\n    }")
  list(APPEND SBOM_COMPONENTS "${text}")
  set(SBOM_COMPONENTS "${SBOM_COMPONENTS}" PARENT_SCOPE)
endfunction()

find_file(SBOM_DNNL_VERSION dnnl_version.h HINTS ${DNNL_INCLUDE} PATH_SUFFIXES oneapi/dnnl REQUIRED NO_DEFAULT_PATH)
sbom_version(SBOM_DNNL ${SBOM_DNNL_VERSION} DNNL_VERSION_MAJOR DNNL_VERSION_MINOR DNNL_VERSION_PATCH)
sbom_version(SBOM_YAJL ${YAJL_INCLUDE}/yajl/yajl_version.h YAJL_MAJOR YAJL_MINOR YAJL_MICRO)
sbom_version(SBOM_PROTOBUF_C ${PROTOBUF_C_INCLUDE}/protobuf-c/protobuf-c.h PROTOBUF_C_VERSION)
sbom_version(SBOM_CAIRO ${CAIRO_INCLUDE}/cairo/cairo-version.h CAIRO_VERSION_MAJOR CAIRO_VERSION_MINOR CAIRO_VERSION_MICRO)
sbom_add(oneDNN ${SBOM_DNNL} Apache-2.0 libdnnl.so required)
find_file(SBOM_JPEG_CONFIG jconfig.h HINTS ${JPEG_INCLUDE_DIRS} PATH_SUFFIXES ${CMAKE_LIBRARY_ARCHITECTURE})
if(SBOM_JPEG_CONFIG)
  sbom_version(JPEG_VERSION ${SBOM_JPEG_CONFIG} LIBJPEG_TURBO_VERSION)
endif()
sbom_add(libjpeg-turbo "${JPEG_VERSION}" "IJG AND BSD-3-Clause" libjpeg.so required)
sbom_add(libpng "${PNG_VERSION_STRING}" libpng-2.0 libpng16.so required)
sbom_add(zlib "${ZLIB_VERSION_STRING}" Zlib libz.so required)
sbom_add(protobuf-c ${SBOM_PROTOBUF_C} BSD-2-Clause libprotobuf-c.so required)
sbom_add(yajl ${SBOM_YAJL} ISC libyajl.so required)
sbom_add(OpenMP "${CMAKE_C_COMPILER_VERSION}" "GPL-3.0-or-later WITH GCC-exception-3.1" libgomp.so required)
sbom_add(cairo ${SBOM_CAIRO} "LGPL-2.1-only OR MPL-1.1" libcairo.so optional)
sbom_version(SBOM_CURL ${CURL_INCLUDE}/curl/curlver.h LIBCURL_VERSION_MAJOR LIBCURL_VERSION_MINOR LIBCURL_VERSION_PATCH)
sbom_add(libcurl ${SBOM_CURL} curl libcurl.so optional)
if(MICROHTTPD_INCLUDE) # 0x00097500 is 0.9.75
  file(STRINGS ${MICROHTTPD_INCLUDE}/microhttpd.h SBOM_MICROHTTPD REGEX "#define MHD_VERSION 0x")
  string(REGEX REPLACE ".*0x0?([0-9]+)([0-9][0-9])([0-9][0-9])[0-9][0-9].*" "\\1.\\2.\\3" SBOM_MICROHTTPD "${SBOM_MICROHTTPD}")
  string(REGEX REPLACE "\\.0([0-9])" ".\\1" SBOM_MICROHTTPD "${SBOM_MICROHTTPD}")
  sbom_add(libmicrohttpd ${SBOM_MICROHTTPD} LGPL-2.1-or-later libmicrohttpd.so optional)
endif()
sbom_version(SBOM_HEIF ${HEIF_INCLUDE}/libheif/heif_version.h LIBHEIF_VERSION)
sbom_add(libheif ${SBOM_HEIF} LGPL-3.0-or-later libheif.so optional)
sbom_version(SBOM_TIFF ${TIFF_INCLUDE}/tiffvers.h TIFFLIB_MAJOR_VERSION TIFFLIB_MINOR_VERSION TIFFLIB_MICRO_VERSION)
sbom_add(libtiff ${SBOM_TIFF} libtiff libtiff.so optional)
list(JOIN SBOM_COMPONENTS ",\n" SBOM_COMPONENTS)
configure_file(${CMAKE_CURRENT_LIST_DIR}/convoy.cdx.json.in ${CMAKE_BINARY_DIR}/convoy.cdx.json @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/convoy.cdx.json DESTINATION ${CMAKE_INSTALL_DATADIR}/convoy COMPONENT program)
