# SPDX-License-Identifier: Apache-2.0
#
# What `make install` puts where: the program with its shell completion, and the recorder with its
# public headers as the CMake package `gapless`. Included by the root, after the targets.

include(CMakePackageConfigHelpers)

# Users write gapless::trace, whether they install us or add us as a subdirectory.
set_target_properties(gapless_recorder PROPERTIES EXPORT_NAME trace)
add_library(gapless::trace ALIAS gapless_recorder)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/gapless)
install(TARGETS gapless_recorder
  EXPORT gapless-targets
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
  FILE_SET HEADERS DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(EXPORT gapless-targets NAMESPACE gapless:: DESTINATION ${package_dir})

configure_package_config_file(
  ${CMAKE_CURRENT_LIST_DIR}/gapless-config.cmake.in
  ${PROJECT_BINARY_DIR}/gapless-config.cmake
  INSTALL_DESTINATION ${package_dir}
  NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file(
  ${PROJECT_BINARY_DIR}/gapless-config-version.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES
  ${PROJECT_BINARY_DIR}/gapless-config.cmake
  ${PROJECT_BINARY_DIR}/gapless-config-version.cmake
  DESTINATION ${package_dir})

# The program writes its own completion, so that the two cannot disagree.
set(bash_completion ${PROJECT_BINARY_DIR}/completion/gapless)
file(MAKE_DIRECTORY ${PROJECT_BINARY_DIR}/completion)
add_custom_command(
  OUTPUT ${bash_completion}
  COMMAND gapless completion bash > ${bash_completion}
  DEPENDS gapless
  COMMENT "Writing the bash completion"
  VERBATIM)
add_custom_target(gapless_completion ALL DEPENDS ${bash_completion})

install(TARGETS gapless RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(FILES ${bash_completion}
  DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
