# The simulated Metal, in the place of Apple's frameworks. Included by src/device/metal/metal.cmake on
# Linux; for tests only.
if(NOT CMAKE_SYSTEM_NAME STREQUAL "Linux" OR NOT CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  message(FATAL_ERROR "LILY_METAL: off a Mac it is simulated, and the simulation is for Linux on x86-64")
endif()
find_library(LILY_BLOCKS NAMES BlocksRuntime DOC "The runtime of blocks (Debian: libblocksruntime-dev)")
if(NOT LILY_BLOCKS)
  message(FATAL_ERROR "LILY_METAL: needs the runtime of blocks (Debian: libblocksruntime-dev)")
endif()

set(simulated_folder ${PROJECT_SOURCE_DIR}/tests/metal/simulated)
file(GLOB simulated_sources CONFIGURE_DEPENDS ${simulated_folder}/*.cpp)
if(LILY_FIBERS)
  list(REMOVE_ITEM simulated_sources ${simulated_folder}/no_executor.cpp)
else()
  list(REMOVE_ITEM simulated_sources ${simulated_folder}/fiber_executor.cpp)
endif()
set_source_files_properties(${simulated_sources} PROPERTIES COMPILE_OPTIONS "${metal_flags}")
target_sources(lily_engine PRIVATE ${simulated_sources})
# The headers of a Mac that metal-cpp asks for, and for tests the simulation's own.
target_include_directories(lily_engine SYSTEM PRIVATE ${simulated_folder}/include)
target_include_directories(lily_engine INTERFACE ${simulated_folder})
target_link_libraries(lily_engine PUBLIC ${LILY_BLOCKS})
