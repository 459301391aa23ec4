# The Metal device. On a Mac it is the product's, with Apple's frameworks; on Linux, for the tests, the
# same files run against the simulated Metal of tests/metal/simulated. Included where the engine is
# defined; needs clang, which alone knows blocks.
find_package(Python 3.10 REQUIRED COMPONENTS Interpreter)
if(NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  message(FATAL_ERROR "LILY_METAL: needs clang, and the compiler is ${CMAKE_CXX_COMPILER_ID}")
endif()

# Apple's metal-cpp: a folder with Foundation/ and Metal/ in it.
set(LILY_METAL_CPP "" CACHE PATH "Folder of the metal-cpp headers; empty: fetched from Apple")
set(metal_cpp_url "https://developer.apple.com/metal/cpp/files/metal-cpp_26.zip")
if(NOT LILY_METAL_CPP)
  include(FetchContent)
  if(POLICY CMP0135)  # files are as old as their download
    cmake_policy(SET CMP0135 NEW)
  endif()
  FetchContent_Declare(metal_cpp URL ${metal_cpp_url} URL_HASH
    SHA256=4df3c078b9aadcb516212e9cb03004cbc5ce9a3e9c068fa3144d021db585a3a4)
  FetchContent_MakeAvailable(metal_cpp)
  set(LILY_METAL_CPP ${metal_cpp_SOURCE_DIR})
endif()
if(NOT EXISTS ${LILY_METAL_CPP}/Metal/Metal.hpp)
  message(FATAL_ERROR "LILY_METAL_CPP: ${LILY_METAL_CPP} holds no Metal/Metal.hpp")
endif()

# Every file of metal/ with its headers inside, as text of the library: what is compiled on a user's
# Mac where there is no metallib.
set(metal_sources_tool ${PROJECT_SOURCE_DIR}/tools/metal_sources.py)
file(GLOB metal_kernels CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/metal/*.metal)
# Kernels that know the lanes of NVIDIA's matrix units are chosen on such GPUs alone (ops/tiles.cpp).
list(FILTER metal_kernels EXCLUDE REGEX "_(lanes|digits)\\.metal$")
file(GLOB metal_headers CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/metal/*.h)
# Metal 4, which the metallib must do without, for it would load on no older system.
file(GLOB tensor_kernels CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/metal/tensor_ops/*.metal)
set(embedded_metal ${CMAKE_BINARY_DIR}/embedded_metal.cpp)
add_custom_command(OUTPUT ${embedded_metal} VERBATIM
                   DEPENDS ${metal_kernels} ${tensor_kernels} ${metal_headers} ${metal_sources_tool}
                   COMMAND ${Python_EXECUTABLE} ${metal_sources_tool} embed ${embedded_metal}
                           ${metal_kernels} ${tensor_kernels})

file(GLOB metal_device CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/device/metal/*.cpp)
list(REMOVE_ITEM metal_device ${PROJECT_SOURCE_DIR}/src/device/metal/absent.cpp)
# A message to nil is no error in Objective-C, and metal-cpp sends such: the compiler may not conclude
# that an object is there because a method of it is called.
set(metal_flags -fblocks -fno-delete-null-pointer-checks)
if(LILY_SANITIZE MATCHES "undefined")
  list(APPEND metal_flags -fno-sanitize=null)
endif()

if(APPLE)
  target_link_libraries(lily_engine PUBLIC "-framework Metal" "-framework Foundation" objc)
  # The metallib, where Xcode's compiler runs: it may be found and yet not be installed.
  execute_process(COMMAND xcrun -sdk macosx metal --version RESULT_VARIABLE no_metal_compiler
                  OUTPUT_QUIET ERROR_QUIET)
  if(NOT no_metal_compiler)
    set(metal_objects "")
    foreach(source IN LISTS metal_kernels)
      get_filename_component(stem ${source} NAME_WE)
      set(object ${CMAKE_BINARY_DIR}/metal/${stem}.air)
      add_custom_command(OUTPUT ${object} DEPENDS ${source} ${metal_headers} VERBATIM
                         COMMAND xcrun -sdk macosx metal -std=metal3.1 -mmacosx-version-min=14.0
                                 -O3 -fno-fast-math -Wall -c ${source} -o ${object})
      list(APPEND metal_objects ${object})
    endforeach()
    file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/metal)
    set(metallib ${CMAKE_BINARY_DIR}/lily.metallib)
    add_custom_command(OUTPUT ${metallib} DEPENDS ${metal_objects} VERBATIM
                       COMMAND xcrun -sdk macosx metallib ${metal_objects} -o ${metallib})
    add_custom_target(lily_metallib ALL DEPENDS ${metallib})
    install(FILES ${metallib} DESTINATION lily)
  endif()
else()
  set(metal_is_simulated ON)
  include(${PROJECT_SOURCE_DIR}/tests/metal/simulated/simulated.cmake)
endif()

set_source_files_properties(${metal_device} PROPERTIES COMPILE_OPTIONS "${metal_flags}")
target_sources(lily_engine PRIVATE ${metal_device} ${embedded_metal})
target_include_directories(lily_engine SYSTEM PRIVATE ${LILY_METAL_CPP})
