// CpuOps: Ops on the CPU. Work that is too small to be worth a fork runs on the calling thread,
// which is the worker. Nothing is allocated once the largest step has been seen.
#pragma once

#include <cstdint>
#include <span>

#include "device/cpu/cpu_attention.h"
#include "device/cpu/cpu_products.h"
#include "device/cpu/kv_store.h"
#include "device/cpu/rope_table.h"
#include "device/cpu/thread_pool.h"
#include "kernels/kernels.h"
#include "polysil/device/ops.h"

namespace polysil {

class CpuOps final : public Ops {
 public:
  CpuOps(const kernels::CpuKernels& kernels, ThreadPool& pool)
      : kernels_(kernels),
        pool_(pool),
        products_(kernels, pool),
        kv_store_(kernels, pool),
        attention_(kernels, pool) {}

  void Embed(const EmbeddingTable& table, std::span<const TokenId> ids, float scale,
             float* out) override;
  void RmsNorm(const float* x, const float* weight, float weight_offset, float eps, int64_t rows,
               int64_t cols, float* out) override;
  void Linear(const float* x, int64_t rows, int64_t cols,
              std::span<const LinearTarget> targets) override;
  void Rope(float* x, std::span<const int32_t> positions, int32_t heads, int32_t head_size,
            const RopeSpec& rope) override;
  void StoreKv(const StoreKvArgs& args) override;
  void Attention(const AttentionArgs& args) override;
  void GatedActivation(Activation activation, const float* gate, const float* up, int64_t rows,
                       int64_t cols, float* out) override;
  void Add(float* x, const float* y, int64_t count) override;
  void SoftCap(float* x, float cap, int64_t count) override;
  void GatherRows(const float* x, std::span<const int32_t> rows, int64_t cols, float* out) override;

 private:
  // body(begin, end) for parts of [0, count), on several threads if they are worth it. floats: what
  // one element of the count takes.
  template <typename Body>
  void Spread(int64_t count, int64_t floats, const Body& body);

  const kernels::CpuKernels& kernels_;
  ThreadPool& pool_;
  RopeTable ropes_;
  CpuProducts products_;
  KvStore kv_store_;
  CpuAttention attention_;
};

}  // namespace polysil
