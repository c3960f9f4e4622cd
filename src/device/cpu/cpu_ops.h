// CpuOps: Ops on the CPU.
#pragma once

#include <vector>

#include "device/cpu/thread_pool.h"
#include "kernels/kernels.h"
#include "polysil/device/backend.h"

namespace polysil {

class CpuMatrix final : public WeightMatrix {
 public:
  CpuMatrix(const HostTensor& tensor, kernels::WeightType type);
  int64_t rows() const override { return tensor_.rows; }
  int64_t cols() const override { return tensor_.cols; }
  const HostTensor& tensor() const { return tensor_; }
  kernels::WeightType type() const { return type_; }
  const float* values() const { return values_.data(); }

 private:
  HostTensor tensor_;
  kernels::WeightType type_;
  std::vector<float> values_;
};

class CpuOps final : public Ops {
 public:
  explicit CpuOps(ThreadPool& pool) : pool_(pool) {}

  void Embed(const WeightMatrix& table, std::span<const TokenId> ids, float scale,
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
  ThreadPool& pool_;
};

}  // namespace polysil
