// Counts what the calling thread allocates, by the program's own operator new. Include it in one
// file of a program: it replaces the global operators.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>

namespace polysil {

inline thread_local int64_t allocations_of_thread = 0;

// How many allocations `run` makes on this thread.
template <typename Run>
int64_t CountAllocations(const Run& run) {
  const int64_t before = allocations_of_thread;
  run();
  return allocations_of_thread - before;
}

}  // namespace polysil

// Kept out of line: the compiler would see free() behind delete and warn.
[[gnu::noinline]] void* operator new(size_t bytes) {
  ++polysil::allocations_of_thread;
  void* memory = std::malloc(bytes);
  if (memory == nullptr) std::abort();
  return memory;
}
[[gnu::noinline]] void operator delete(void* memory) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept {
  std::free(memory);
}
