// PanelArena: memory for the panels of many matrices, side by side in slabs of huge pages: a step
// reads all of them once, and small pages cost a page walk every 4 KiB. A slab goes back to the
// system when the last matrix in it is gone. Not thread-safe: matrices are loaded by one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace polysil {

class PanelArena final {
 public:
  // Zeroed, 64-byte aligned; null when the system has no such memory. Holds its slab.
  std::shared_ptr<std::byte> Allocate(int64_t bytes);

 private:
  std::shared_ptr<std::byte> slab_;  // the one being filled
  int64_t slab_bytes_ = 0;
  int64_t slab_used_ = 0;
};

}  // namespace polysil
