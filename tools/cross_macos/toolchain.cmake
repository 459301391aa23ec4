# Builds for macOS on Apple Silicon, on Linux: zig's clang and libSystem, and the names of the few
# frameworks that Lily links. build_wheel.py writes the compiler command and passes its folder.
set(CMAKE_SYSTEM_NAME Darwin)
set(CMAKE_SYSTEM_PROCESSOR arm64)
set(CMAKE_SYSTEM_VERSION 23.0)  # macOS 14.0
set(CMAKE_CXX_COMPILER ${LILY_CROSS_TOOLS}/c++)
set(CMAKE_AR ${LILY_CROSS_TOOLS}/ar)
set(CMAKE_RANLIB ${LILY_CROSS_TOOLS}/ranlib)
set(CMAKE_STRIP ${LILY_CROSS_TOOLS}/strip)
# Named so that CMake does not look for Apple's; nothing that is built here is installed by name.
set(CMAKE_INSTALL_NAME_TOOL ${LILY_CROSS_TOOLS}/none)
set(CMAKE_OTOOL ${LILY_CROSS_TOOLS}/none)
set(CMAKE_OSX_SYSROOT "")
set(CMAKE_OSX_ARCHITECTURES "" CACHE STRING "")
set(CMAKE_OSX_DEPLOYMENT_TARGET "" CACHE STRING "")
list(APPEND CMAKE_FRAMEWORK_PATH ${CMAKE_CURRENT_LIST_DIR}/sdk/frameworks)
list(APPEND CMAKE_LIBRARY_PATH ${CMAKE_CURRENT_LIST_DIR}/sdk/lib)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_TRY_COMPILE_PLATFORM_VARIABLES LILY_CROSS_TOOLS)
