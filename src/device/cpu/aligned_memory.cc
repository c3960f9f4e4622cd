#include "device/cpu/aligned_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "polysil/base/check.h"

namespace polysil {
namespace {

constexpr int64_t kMappedBytesMin = 128 << 10;

}  // namespace

AlignedMemory AlignedMemory::Allocate(int64_t bytes) {
  constexpr int64_t kAlignment = 64;
  AlignedMemory memory;
  const int64_t rounded = std::max<int64_t>(1, bytes + kAlignment - 1) / kAlignment * kAlignment;
  if (rounded >= kMappedBytesMin) {
    void* pages = mmap(nullptr, static_cast<size_t>(rounded), PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED) return memory;
    // Advice for those parts that are whole huge pages; refusal does no harm.
    madvise(pages, static_cast<size_t>(rounded), MADV_HUGEPAGE);
    memory.data_ = static_cast<std::byte*>(pages);
  } else {
    const auto size = static_cast<size_t>(std::max<int64_t>(rounded, kAlignment));
    memory.data_ = static_cast<std::byte*>(std::aligned_alloc(kAlignment, size));
    if (memory.data_ == nullptr) return memory;
    std::memset(memory.data_, 0, size);
  }
  memory.bytes_ = rounded;
  return memory;
}

void AlignedMemory::GrowTo(int64_t bytes) {
  Release();
  *this = Allocate(bytes + bytes / 2);
  CHECK(data_ != nullptr, "no memory for {} bytes of scratch", bytes + bytes / 2);
}

void AlignedMemory::Release() {
  if (data_ == nullptr) return;
  if (bytes_ >= kMappedBytesMin) {
    munmap(data_, static_cast<size_t>(bytes_));
  } else {
    std::free(data_);
  }
  data_ = nullptr;
  bytes_ = 0;
}

}  // namespace polysil
