// The machine's memory: how much of it this process may still take, and giving back.
#pragma once

#include <cstdint>
#include <string>

namespace polysil {

// What this process may still take, in bytes: what the machine has left, or less where a cgroup
// says so; at least 0. `root` is "" but for tests, which lay out proc and sys below it.
int64_t MemoryAvailableBytes(const std::string& root = "");

// From now on what large texts took goes back to the system when they are done, instead of staying
// with the allocator. Called before there are other threads.
void GiveBackLargeMemory();

}  // namespace polysil
