# Packages for Debian and its relatives, made by CPack: scripts/deb configures a build with -DCONVOY_DEBIAN=ON. One for each
# component of the installation; a package's dependencies on others' libraries come from what it is linked with.
option(CONVOY_DEBIAN "Install as Debian's packages want it" OFF)
if(NOT CONVOY_DEBIAN)
  return()
endif()
set(DEBIAN_PACKAGES program:convoy library:libconvoy0 development:libconvoy-dev python:python3-convoy)
if(TARGET convoy_cuda)
  list(APPEND DEBIAN_PACKAGES cuda:convoy-cuda)
endif()
if(MPI_MODULES)
  list(APPEND DEBIAN_PACKAGES mpi:convoy-mpi)
endif()

install(DIRECTORY python/convoy DESTINATION lib/python3/dist-packages COMPONENT python FILES_MATCHING PATTERN "*.py"
  PATTERN "py.typed" PATTERN "__pycache__" EXCLUDE)

# Debian wants manual pages compressed, and of each package its licence and its changelog.
string(TIMESTAMP DEBIAN_DATE "%a, %d %b %Y %H:%M:%S +0000" UTC)
set(DEBIAN_REVISION 1)
set(DEBIAN_MAINTAINER "the authors of Convoy <convoy@localhost>") # who gives packages to others says who that is
if(DEFINED ENV{DEBEMAIL})
  set(DEBIAN_MAINTAINER "$ENV{DEBFULLNAME} <$ENV{DEBEMAIL}>")
endif()
configure_file(packaging/debian/changelog.in debian/changelog @ONLY)
configure_file(packaging/debian/shlibs.in debian/shlibs @ONLY)
find_program(GZIP gzip REQUIRED)
file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/debian)
execute_process(COMMAND ${GZIP} -9nkf ${CMAKE_BINARY_DIR}/debian/changelog)
install(CODE "
  file(GLOB pages \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/share/man/man1/*.1\")
  if(pages)
    execute_process(COMMAND ${GZIP} -9nf \${pages})
  endif()" COMPONENT program)

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME convoy)
set(CPACK_PACKAGE_VENDOR "the authors of Convoy")
set(CPACK_PACKAGE_CONTACT "${DEBIAN_MAINTAINER}")
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_PACKAGE_DIRECTORY ${CMAKE_BINARY_DIR}/dist)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ
  WORLD_EXECUTE)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_COMPONENTS_GROUPING ONE_PER_GROUP)
set(CPACK_DEBIAN_PACKAGE_RELEASE ${DEBIAN_REVISION})
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${CMAKE_BINARY_DIR})
set(CPACK_DEBIAN_PACKAGE_PRIORITY optional)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)

set(version "= ${PROJECT_VERSION}-${DEBIAN_REVISION}")
# debian_package COMPONENT SECTION DEPENDS SUMMARY TEXT
function(debian_package component section depends summary text)
  string(TOUPPER ${component} name)
  set(CPACK_DEBIAN_${name}_PACKAGE_SECTION ${section} PARENT_SCOPE)
  set(CPACK_DEBIAN_${name}_PACKAGE_DEPENDS "${depends}" PARENT_SCOPE)
  set(CPACK_COMPONENT_${name}_DESCRIPTION "${summary}\n${text}" PARENT_SCOPE)
endfunction()
debian_package(program science "libconvoy0 (${version})" "train and run convolutional networks"
  "Convoy trains networks that classify images or find objects on them,\nand runs them. This is the program convoy.")
debian_package(library libs "" "train and run convolutional networks: the library"
  "Convoy trains networks that classify images or find objects on them,\nand runs them. This is the shared library.")
debian_package(development libdevel "libconvoy0 (${version})" "train and run convolutional networks: headers"
  "What one needs to build programs with Convoy's C library: headers,\nthe files for pkg-config and CMake, examples.")
debian_package(python python "libconvoy0 (${version}), python3" "train and run convolutional networks: Python module"
  "Classify images, find objects and train networks from Python, by\nConvoy's library.")
debian_package(cuda science "libconvoy0 (${version})" "train and run convolutional networks: NVIDIA GPUs"
  "The module by which Convoy uses NVIDIA's GPUs. The driver, CUDA and\ncuDNN are looked for when it is loaded.")
debian_package(mpi science "libconvoy0 (${version}), libc6, libopenmpi3 | libmpich12"
  "train and run convolutional networks: MPI"
  "The modules by which Convoy trains in processes that an MPI has started,\nOpen MPI's or MPICH's.")
set(CPACK_DEBIAN_LIBRARY_PACKAGE_CONTROL_EXTRA ${CMAKE_SOURCE_DIR}/packaging/debian/triggers
  ${CMAKE_BINARY_DIR}/debian/shlibs)
# What the library loads where it is there: drawing, downloads, a server, more kinds of images.
set(CPACK_DEBIAN_LIBRARY_PACKAGE_RECOMMENDS "libcairo2, libcurl4, libheif1, libmicrohttpd12, libtiff6, libwebp7")
set(CPACK_DEBIAN_PROGRAM_PACKAGE_SUGGESTS "convoy-cuda, convoy-mpi")
set(CPACK_DEBIAN_PYTHON_PACKAGE_CONTROL_EXTRA ${CMAKE_SOURCE_DIR}/packaging/debian/python/postinst
  ${CMAKE_SOURCE_DIR}/packaging/debian/python/prerm)
set(CPACK_DEBIAN_PYTHON_PACKAGE_RECOMMENDS "python3-numpy")
set(CPACK_DEBIAN_PYTHON_PACKAGE_ARCHITECTURE all)
set(CPACK_DEBIAN_PYTHON_PACKAGE_SHLIBDEPS OFF)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SHLIBDEPS OFF)
set(CPACK_DEBIAN_MPI_PACKAGE_SHLIBDEPS OFF) # one MPI of the two is enough

set(CPACK_COMPONENTS_ALL)
foreach(pair ${DEBIAN_PACKAGES})
  string(REPLACE ":" ";" pair ${pair})
  list(GET pair 0 component)
  list(GET pair 1 package)
  string(TOUPPER ${component} name)
  list(APPEND CPACK_COMPONENTS_ALL ${component})
  set(CPACK_DEBIAN_${name}_PACKAGE_NAME ${package})
  install(FILES packaging/debian/copyright DESTINATION share/doc/${package} COMPONENT ${component})
  install(FILES ${CMAKE_BINARY_DIR}/debian/changelog.gz DESTINATION share/doc/${package} RENAME changelog.Debian.gz
    COMPONENT ${component})
endforeach()
include(CPack)
