# What most sources read first, compiled once: the headers of others that take long. Ours are not
# among them, so that a change of one compiles only what includes it. Sources include what they use
# all the same: clang-tidy and the header check read them without this.
set(POLYSIL_PRECOMPILED
  <algorithm> <array> <chrono> <functional> <map> <memory> <optional> <random> <ranges> <span>
  <string> <string_view> <utility> <vector> <absl/container/btree_map.h>
  <absl/container/flat_hash_map.h> <absl/status/statusor.h> <fmt/format.h>)
set(POLYSIL_PRECOMPILED_TESTS
  ${POLYSIL_PRECOMPILED} <boost/json.hpp> <gmock/gmock.h> <gtest/gtest.h>)

file(WRITE ${CMAKE_BINARY_DIR}/precompiled.cc "")
function(add_precompiled_headers name)
  add_library(${name} OBJECT ${CMAKE_BINARY_DIR}/precompiled.cc)
  target_link_libraries(${name} PRIVATE absl::statusor absl::flat_hash_map absl::btree fmt::fmt)
  target_precompile_headers(${name} PRIVATE ${ARGN})
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    target_compile_options(${name} PRIVATE -fpch-preprocess)  # ccache asks for it
  endif()
endfunction()
add_precompiled_headers(precompiled ${POLYSIL_PRECOMPILED})
add_precompiled_headers(precompiled_tests ${POLYSIL_PRECOMPILED_TESTS})
target_link_libraries(precompiled_tests PRIVATE Boost::json GTest::gmock)

# For a target whose sources are not kernels.
function(use_precompiled_headers target from)
  target_precompile_headers(${target} REUSE_FROM ${from})
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    target_compile_options(${target} PRIVATE -fpch-preprocess -Winvalid-pch)
  endif()
endfunction()
