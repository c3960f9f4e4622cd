// KvStore: writes the keys and values of a step's rows into the blocks of their sequences. Called
// by the worker thread.
#pragma once

#include <cstdint>
#include <vector>

#include "device/cpu/aligned_memory.h"
#include "device/cpu/thread_pool.h"
#include "kernels/kernels.h"
#include "polysil/device/ops.h"

namespace polysil {

class KvStore final {
 public:
  KvStore(const kernels::CpuKernels& kernels, ThreadPool& pool)
      : kernels_(kernels), pool_(pool), narrow_(static_cast<size_t>(pool.threads())) {}

  void Store(const StoreKvArgs& args);

 private:
  void StoreRow(const StoreKvArgs& args, const AttentionSequence& sequence, int32_t row,
                std::byte* narrow) const;

  const kernels::CpuKernels& kernels_;
  ThreadPool& pool_;
  std::vector<AlignedMemory> narrow_;  // one key or value before it is spread, by rank
};

}  // namespace polysil
