#include "daemon/machine_memory.h"

#include <malloc.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <optional>
#include <string>

namespace polysil {
namespace {

// The number that follows `key` ("MemAvailable:"), in the file's own unit.
std::optional<int64_t> ReadKey(const std::string& path, const std::string& key) {
  std::ifstream file(path);
  std::string word;
  while (file >> word) {
    if (word != key) continue;
    int64_t value = 0;
    if (file >> value) return value;
  }
  return std::nullopt;
}

std::optional<int64_t> ReadNumber(const std::string& path) {
  std::ifstream file(path);
  int64_t value = 0;
  if (file >> value) return value;  // "max" is no number: no limit
  return std::nullopt;
}

// This process's cgroup v2 folder: "/sys/fs/cgroup" and the path of the line "0::/...".
std::string CgroupFolder(const std::string& root) {
  std::ifstream file(root + "/proc/self/cgroup");
  std::string line;
  while (std::getline(file, line)) {
    if (line.rfind("0::", 0) == 0) return root + "/sys/fs/cgroup" + line.substr(3);
  }
  return root + "/sys/fs/cgroup";
}

}  // namespace

int64_t MemoryAvailableBytes(const std::string& root) {
  int64_t available = ReadKey(root + "/proc/meminfo", "MemAvailable:").value_or(0) * 1024;
  const std::string folder = CgroupFolder(root);
  const std::optional<int64_t> limit = ReadNumber(folder + "/memory.max");
  const std::optional<int64_t> used = ReadNumber(folder + "/memory.current");
  if (limit && used) {
    // Files in the page cache count as used but are given up on demand.
    const int64_t files = ReadKey(folder + "/memory.stat", "inactive_file").value_or(0);
    available = std::min(available, *limit - *used + files);
  }
  return std::max<int64_t>(available, 0);
}

void GiveBackLargeMemory() {
  // Left alone, the threshold rises with the largest block that was freed, to 32 MiB.
  constexpr int kMappedFrom = 1 << 20;
  mallopt(M_MMAP_THRESHOLD, kMappedFrom);
}

}  // namespace polysil
