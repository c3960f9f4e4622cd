#include "device/cpu/panel_arena.h"

#include <sys/mman.h>

#include <algorithm>

namespace polysil {
namespace {

constexpr int64_t kHugePage = int64_t{2} << 20;
constexpr int64_t kSlabBytes = int64_t{64} << 20;

int64_t RoundUp(int64_t bytes, int64_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

// Address space of a slab, aligned to huge pages; memory is taken as it is written.
std::shared_ptr<std::byte> MapSlab(int64_t bytes) {
  const auto mapped_bytes = static_cast<size_t>(bytes + kHugePage);
  void* mapped = mmap(nullptr, mapped_bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) return nullptr;
  const auto address = static_cast<int64_t>(reinterpret_cast<uintptr_t>(mapped));
  std::byte* aligned = static_cast<std::byte*>(mapped) + (RoundUp(address, kHugePage) - address);
  madvise(aligned, static_cast<size_t>(bytes), MADV_HUGEPAGE);  // advice: refusal does no harm
  return {aligned, [mapped, mapped_bytes](std::byte*) { munmap(mapped, mapped_bytes); }};
}

}  // namespace

std::shared_ptr<std::byte> PanelArena::Allocate(int64_t bytes) {
  const int64_t rounded = RoundUp(bytes, 64);
  if (slab_ == nullptr || rounded > slab_bytes_ - slab_used_) {
    const int64_t slab_bytes = std::max(kSlabBytes, RoundUp(rounded, kHugePage));
    std::shared_ptr<std::byte> slab = MapSlab(slab_bytes);
    if (slab == nullptr) return nullptr;
    slab_ = std::move(slab);
    slab_bytes_ = slab_bytes;
    slab_used_ = 0;
  }
  std::shared_ptr<std::byte> memory(slab_, slab_.get() + slab_used_);
  slab_used_ += rounded;
  return memory;
}

}  // namespace polysil
