// AlignedMemory: zeroed bytes at a 64-byte boundary, owned. Large ones come straight from the
// system, whose pages take memory only once they are written.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

namespace polysil {

class AlignedMemory final {
 public:
  AlignedMemory() = default;
  ~AlignedMemory() { Release(); }
  AlignedMemory(AlignedMemory&& other) noexcept { Swap(other); }
  AlignedMemory& operator=(AlignedMemory&& other) noexcept {
    AlignedMemory old(std::move(other));
    Swap(old);
    return *this;
  }
  AlignedMemory(const AlignedMemory&) = delete;
  AlignedMemory& operator=(const AlignedMemory&) = delete;

  // data() is null when the system has no such memory.
  static AlignedMemory Allocate(int64_t bytes);

  std::byte* data() { return data_; }
  const std::byte* data() const { return data_; }

  // Room for `count` elements; what was there is lost when it grows, so that a step loop that has
  // seen its largest step allocates no more. Ends the process when memory ends: a restart is
  // cheaper than a half-done step.
  template <typename T>
  T* Grow(int64_t count) {
    const int64_t bytes = count * static_cast<int64_t>(sizeof(T));
    if (bytes > bytes_) GrowTo(bytes);
    return reinterpret_cast<T*>(data_);
  }

 private:
  void GrowTo(int64_t bytes);
  void Release();
  void Swap(AlignedMemory& other) {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
  }

  std::byte* data_ = nullptr;
  int64_t bytes_ = 0;  // allocated: says how data_ was
};

}  // namespace polysil
