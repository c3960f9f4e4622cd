# A layer is a folder of src/, one static library, and one test program made of the files
# tests/<layer>/*_test.cc.
add_compile_options(-pthread -Wall -Wextra -Wpedantic -Wshadow -Wno-missing-field-initializers)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # GCC 12 reports these where inlining hides that a value is set, or how long a string is.
  add_compile_options(-Wno-maybe-uninitialized -Wno-restrict -Wno-stringop-overflow
                      -Wno-stringop-overread -Wno-array-bounds)
endif()

function(add_layer name)
  cmake_parse_arguments(ARG "" "" "DEPS;LIBS;TEST_DEPS" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/${name}/*.cc)
  list(FILTER sources EXCLUDE REGEX "/main\\.cc$")
  list(TRANSFORM ARG_DEPS PREPEND polysil_)
  if(sources)
    add_library(polysil_${name} STATIC ${sources})
    use_precompiled_headers(polysil_${name} precompiled)
    set(scope PUBLIC)
  else()
    add_library(polysil_${name} INTERFACE)
    set(scope INTERFACE)
  endif()
  target_include_directories(polysil_${name} ${scope}
    ${CMAKE_SOURCE_DIR}/include ${CMAKE_SOURCE_DIR}/src ${CMAKE_SOURCE_DIR})
  target_link_libraries(polysil_${name} ${scope} ${ARG_DEPS} ${ARG_LIBS} Threads::Threads)
  add_layer_test(${name} ${ARG_TEST_DEPS})
endfunction()

# Tests of a layer: every tests/<layer>/*_test.cc in one program, test_<layer>.
function(add_layer_test name)
  file(GLOB tests CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/${name}/*_test.cc)
  if(NOT tests)
    return()
  endif()
  add_executable(test_${name} ${tests})
  use_precompiled_headers(test_${name} precompiled_tests)
  target_include_directories(test_${name} PRIVATE ${CMAKE_SOURCE_DIR}/tests)
  target_compile_definitions(test_${name} PRIVATE
    POLYSIL_SOURCE_DIR="${CMAKE_SOURCE_DIR}"
    POLYSIL_SHARED_DIR="${CMAKE_SOURCE_DIR}/../shared")
  list(TRANSFORM ARGN PREPEND polysil_ OUTPUT_VARIABLE deps)
  list(REMOVE_ITEM deps polysil_fakes)
  target_link_libraries(test_${name} PRIVATE polysil_${name} ${deps} Boost::json fmt::fmt
    GTest::gmock GTest::gtest_main)
  add_test(NAME ${name} COMMAND test_${name} WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
  set_tests_properties(${name} PROPERTIES LABELS unit TIMEOUT 1200)
endfunction()

# test_seeded_bugs: the deciding layers and the simulator once more, with src/base/seeded_bug.h's
# places open, and the scenarios and seeds that must notice each of them. Each layer is compiled as
# one file, which takes a quarter of the time.
function(add_seeded_bugs_test)
  add_executable(test_seeded_bugs ${CMAKE_SOURCE_DIR}/src/core/sequence.cc
    ${CMAKE_SOURCE_DIR}/tests/sim/seeded/seeded_bugs_test.cc
    ${CMAKE_SOURCE_DIR}/tests/sim/seeds_test.cc ${CMAKE_SOURCE_DIR}/tests/engine/scenario_test.cc)
  foreach(layer kv sched engine sim)
    file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/${layer}/*.cc)
    target_sources(test_seeded_bugs PRIVATE ${sources})
    set_source_files_properties(${sources} TARGET_DIRECTORY test_seeded_bugs
      PROPERTIES UNITY_GROUP ${layer})
  endforeach()
  set_target_properties(test_seeded_bugs PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
  target_compile_definitions(test_seeded_bugs PRIVATE
    POLYSIL_SEEDED_BUGS POLYSIL_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
  target_include_directories(test_seeded_bugs PRIVATE
    ${CMAKE_SOURCE_DIR}/include ${CMAKE_SOURCE_DIR}/src ${CMAKE_SOURCE_DIR}/tests)
  target_link_libraries(test_seeded_bugs PRIVATE polysil_core OpenSSL::Crypto absl::flat_hash_map
    absl::flat_hash_set absl::btree Boost::json Threads::Threads GTest::gmock GTest::gtest)
  add_test(NAME seeded_bugs COMMAND test_seeded_bugs WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
  set_tests_properties(seeded_bugs PROPERTIES LABELS unit TIMEOUT 1200)
endfunction()

# kernels/: math on raw pointers, one instruction set per file suffix. No contraction: the same
# operations in the same order give the same bits on every instruction set. GCC's reassociation and
# replacement of temporaries would undo the order in which integer sums are written, which keeps
# them in registers.
function(add_kernels)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS
       ${CMAKE_SOURCE_DIR}/kernels/reference/*.cc ${CMAKE_SOURCE_DIR}/kernels/cpu/*.cc)
  if(NOT CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
    list(FILTER sources EXCLUDE REGEX "_avx(2|512)\\.cc$")
  endif()
  set(order "$<$<CXX_COMPILER_ID:GNU>:-fno-tree-reassoc;-fno-tree-ter>")
  add_library(polysil_kernels STATIC ${sources})
  target_include_directories(polysil_kernels PUBLIC ${CMAKE_SOURCE_DIR})
  target_compile_options(polysil_kernels PRIVATE -O3 -ffp-contract=off)
  foreach(source ${sources})
    if(source MATCHES "_avx2\\.cc$")
      set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS
        "-mavx2;-mfma;-mf16c;${order}")
    elseif(source MATCHES "_avx512\\.cc$")
      set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS
        "-mavx2;-mfma;-mf16c;-mavx512f;-mavx512bw;-mavx512vl;-mavx512dq;-mavx512vnni;${order}")
    endif()
  endforeach()
  add_layer_test(kernels)
  # The AVX-512 file once more with emulated instructions, so that its tests run on any machine.
  # Loops and calls stay as written: unrolled emulation takes minutes to compile.
  find_path(SIMDE_INCLUDE_DIR simde/x86/avx512.h)
  if(TARGET test_kernels AND SIMDE_INCLUDE_DIR)
    set(emulated ${CMAKE_SOURCE_DIR}/tests/kernels/emulated_avx512.cc)
    set_source_files_properties(${emulated} PROPERTIES SKIP_PRECOMPILE_HEADERS ON COMPILE_OPTIONS
      "-O1;-fno-inline;-fno-tree-loop-optimize;-ffp-contract=off;-Wno-psabi")
    target_sources(test_kernels PRIVATE ${emulated})
    target_include_directories(test_kernels SYSTEM PRIVATE ${SIMDE_INCLUDE_DIR})
    target_compile_definitions(test_kernels PRIVATE POLYSIL_TESTS_EMULATED_AVX512)
  endif()
endfunction()

function(add_program name layer)
  file(GLOB main CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/${layer}/main.cc)
  if(NOT main)
    return()
  endif()
  add_executable(${name} ${main})
  target_link_libraries(${name} PRIVATE polysil_${layer})
endfunction()

# bench/<layer>[_<part>]_bench.cc: a Google Benchmark program bench_<layer>[_<part>], linked against
# that layer.
function(add_benchmarks)
  file(GLOB benches CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/bench/*_bench.cc)
  foreach(source ${benches})
    get_filename_component(stem ${source} NAME_WE)
    string(REPLACE "_bench" "" name ${stem})
    string(REGEX REPLACE "_.*" "" layer ${name})
    add_executable(bench_${name} EXCLUDE_FROM_ALL ${source})
    target_compile_definitions(bench_${name} PRIVATE POLYSIL_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
    target_link_libraries(bench_${name} PRIVATE polysil_${layer} benchmark::benchmark)
  endforeach()
endfunction()
