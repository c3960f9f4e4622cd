// How much memory this process may still take: the machine's, or less where a cgroup says so.
#pragma once

#include <cstdint>
#include <string>

namespace polysil {

// Bytes; at least 0. `root` is "" but for tests, which lay out proc and sys below it.
int64_t MemoryAvailableBytes(const std::string& root = "");

}  // namespace polysil
