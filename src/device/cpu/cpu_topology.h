// CpuTopology: what hwloc knows of the part of the machine that this process may run on. Immutable;
// thread-safe.
#pragma once

#include <cstdint>
#include <string>

struct hwloc_topology;

namespace polysil {

class CpuTopology final {
 public:
  CpuTopology();
  ~CpuTopology();
  CpuTopology(const CpuTopology&) = delete;
  CpuTopology& operator=(const CpuTopology&) = delete;

  int32_t cores() const { return cores_; }  // physical ones; at least 1
  int64_t memory_bytes() const { return memory_bytes_; }
  int64_t l3_bytes() const { return l3_bytes_; }  // of all caches together; 0: unknown
  const std::string& cpu_model() const { return cpu_model_; }

  // Keeps the calling thread on the core of that number (modulo cores), where the system lets it.
  void BindThread(int32_t core_index) const;

 private:
  hwloc_topology* topology_ = nullptr;  // null: nothing is known
  int32_t cores_ = 1;
  int64_t memory_bytes_ = 0;
  int64_t l3_bytes_ = 0;
  std::string cpu_model_ = "CPU";
};

}  // namespace polysil
