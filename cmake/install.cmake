# install.cmake - what `cmake --install` puts where: headers, both libraries, fiber.pc and the CMake package.
#
# SPDX-License-Identifier: Apache-2.0
include(CMakePackageConfigHelpers)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/fiber)

install(TARGETS fiber fiber_static EXPORT fiberTargets)
install(TARGETS ${fiber_modules} DESTINATION ${CMAKE_INSTALL_LIBDIR}/fiber)
install(DIRECTORY backends/command/templates DESTINATION ${CMAKE_INSTALL_DATADIR}/fiber)
install(DIRECTORY include/ TYPE INCLUDE FILES_MATCHING PATTERN "*.h")
install(EXPORT fiberTargets NAMESPACE fiber:: DESTINATION ${package_dir})
if(TARGET fiber_cli)
    file(RELATIVE_PATH bin_to_lib ${CMAKE_INSTALL_FULL_BINDIR} ${CMAKE_INSTALL_FULL_LIBDIR})
    # What a build folder's own has in place of it is colons, which mean the current folder.
    set_target_properties(fiber_cli PROPERTIES INSTALL_RPATH "$ORIGIN/${bin_to_lib}" BUILD_WITH_INSTALL_RPATH ON)
    install(TARGETS fiber_cli)
endif()

configure_package_config_file(cmake/fiberConfig.cmake.in fiberConfig.cmake INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(fiberConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/fiberConfig.cmake ${PROJECT_BINARY_DIR}/fiberConfigVersion.cmake
    DESTINATION ${package_dir})

file(RELATIVE_PATH pc_to_prefix ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
configure_file(cmake/fiber.pc.in fiber.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/fiber.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
