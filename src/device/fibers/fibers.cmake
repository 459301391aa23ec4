# The device "fibers": metal/*.metal compiled for this machine and linked into whatever links the
# engine. Included where the engine is defined; needs clang 22 and Linux.
if(NOT CMAKE_SYSTEM_NAME STREQUAL "Linux")
  message(FATAL_ERROR "LILY_FIBERS: the device 'fibers' is for Linux")
endif()
if(LILY_SANITIZE MATCHES "thread")
  message(FATAL_ERROR "LILY_FIBERS: switching stacks and the thread sanitizer do not go together; "
                      "the device finds races by itself")
endif()
find_program(LILY_CLANG NAMES clang-22 clang DOC "clang 22 or newer, for the Metal kernels")
if(NOT LILY_CLANG)
  message(FATAL_ERROR "LILY_FIBERS: needs clang 22 or newer (Debian: clang-22), and found none; "
                      "-DLILY_CLANG= says where it is")
endif()
execute_process(COMMAND ${LILY_CLANG} --version OUTPUT_VARIABLE clang_version)
string(REGEX MATCH "clang version ([0-9]+)" clang_version "${clang_version}")
if(NOT CMAKE_MATCH_1 OR CMAKE_MATCH_1 LESS 22)
  message(FATAL_ERROR "LILY_FIBERS: ${LILY_CLANG} is '${clang_version}', expected clang 22 or newer")
endif()
option(LILY_FIBERS_CHECKS "Check every memory access of kernels on fibers" ON)
find_package(Python 3.10 REQUIRED COMPONENTS Interpreter)

# AddressSanitizer takes the place of the device's own checks, for it knows the stacks as well; it
# knows no races, though.
if(LILY_SANITIZE MATCHES "address")
  set(fiber_sanitizers ${LILY_SANITIZE})
elseif(LILY_FIBERS_CHECKS)
  set(fiber_sanitizers checks)
else()
  set(fiber_sanitizers "")
endif()

# lily_fiber_object(<variable> <source>): appends the object that a kernel file becomes.
function(lily_fiber_object variable source)
  get_filename_component(stem ${source} NAME_WE)
  set(object ${CMAKE_BINARY_DIR}/fibers/${stem}.o)
  file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/fibers)
  add_custom_command(OUTPUT ${object} DEPENDS ${source} ${PROJECT_SOURCE_DIR}/tools/metal_clang.py
                     DEPFILE ${object}.d VERBATIM
                     COMMAND ${Python_EXECUTABLE} ${PROJECT_SOURCE_DIR}/tools/metal_clang.py
                             --clang ${LILY_CLANG} object ${source} ${object}
                             --sanitize=${fiber_sanitizers})
  set(${variable} ${${variable}} ${object} PARENT_SCOPE)
endfunction()

# Tensor ops as well, over an emulation in metal/clang.
file(GLOB fiber_kernels CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/metal/*.metal
     ${PROJECT_SOURCE_DIR}/metal/tensor_ops/*.metal)
set(fiber_objects "")
foreach(source IN LISTS fiber_kernels)
  lily_fiber_object(fiber_objects ${source})
endforeach()
add_custom_target(lily_fiber_kernels DEPENDS ${fiber_objects})
add_dependencies(lily_engine lily_fiber_kernels)

file(GLOB fiber_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/device/fibers/*.cpp)
target_sources(lily_engine PRIVATE ${fiber_sources})
target_compile_definitions(lily_engine PRIVATE LILY_HAS_FIBERS=1)
# The objects go to the linker as they are: nothing refers to a kernel, so from an archive none
# would be taken.
target_link_libraries(lily_engine INTERFACE ${fiber_objects} ${CMAKE_DL_LIBS} m)
