# What `cmake --install` copies beside the program. The folder may be moved afterwards: the files for pkg-config and CMake find
# the others from where they lie themselves. Where CMAKE_INSTALL_LIBDIR is absolute, so is the prefix in convoy.pc.
include(CMakePackageConfigHelpers)
set(PC_PREFIX ${CMAKE_INSTALL_PREFIX})
if(NOT IS_ABSOLUTE "${CMAKE_INSTALL_LIBDIR}")
  file(RELATIVE_PATH PC_PREFIX "/${CMAKE_INSTALL_LIBDIR}/pkgconfig" /)
  string(REGEX REPLACE "/$" "" PC_PREFIX "\${pcfiledir}/${PC_PREFIX}")
endif()
foreach(folder LIB INCLUDE)
  set(PC_${folder}DIR "\${prefix}/${CMAKE_INSTALL_${folder}DIR}")
  if(IS_ABSOLUTE "${CMAKE_INSTALL_${folder}DIR}")
    set(PC_${folder}DIR ${CMAKE_INSTALL_${folder}DIR})
  endif()
endforeach()
configure_file(cmake/convoy.pc.in convoy.pc @ONLY)
# Before 1.0 a new minor version may change the interface.
write_basic_package_version_file(${CMAKE_BINARY_DIR}/convoyConfigVersion.cmake COMPATIBILITY SameMinorVersion)
set(CONVOY_CMAKE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/convoy)

install(TARGETS convoy EXPORT convoy LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT library
  NAMELINK_COMPONENT development)
install(EXPORT convoy NAMESPACE convoy:: FILE convoyConfig.cmake DESTINATION ${CONVOY_CMAKE_DIR}
  COMPONENT development)
install(FILES ${CMAKE_BINARY_DIR}/convoyConfigVersion.cmake DESTINATION ${CONVOY_CMAKE_DIR} COMPONENT development)
install(FILES ${CMAKE_BINARY_DIR}/convoy.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT development)
install(DIRECTORY include/convoy DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT development
  PATTERN program EXCLUDE)
install(DIRECTORY examples DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT development)
install(DIRECTORY recipes DESTINATION ${CMAKE_INSTALL_DATADIR}/convoy COMPONENT program)
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT license)
