// What attention of the CPU device reaches: bytes of keys and values per second as a fraction of
// the read bandwidth measured in the same run where rows are few, operations per second where they
// are many. Shapes are those of SmolLM2-135M: 30 layers, 9 query heads on 3 KV heads of 64.
//
//   ninja bench_device_attention && bin/bench_device_attention [--benchmark_filter=...]
#include <benchmark/benchmark.h>

#include <memory>
#include <random>
#include <vector>

#include "bench/read_bandwidth.h"
#include "device/cpu/cpu_device.h"
#include "polysil/base/check.h"

namespace polysil {
namespace {

constexpr int32_t kThreads = 2;
constexpr int32_t kLayers = 30;
constexpr int32_t kQueryHeads = 9;
constexpr int32_t kHeadSize = 64;

// Sequences of `context` tokens, the first `shared` of which are the same blocks for all.
class Sequences {
 public:
  Sequences(DType dtype, int32_t count, int32_t context, int32_t shared) {
    auto device = CreateCpuDevice({.threads = kThreads});
    CHECK(device.ok(), "{}", Message(device.status()));
    device_ = *std::move(device);
    std::vector<BlockId> common;
    for (int32_t t = 0; t + 16 <= shared; t += 16) common.push_back({pool_.blocks++});
    for (int32_t s = 0; s < count; ++s) {
      std::vector<BlockId>& table = tables_.emplace_back(common);
      while (static_cast<int32_t>(table.size()) * 16 < context) table.push_back({pool_.blocks++});
    }
    pool_.layout = {.layers = kLayers, .kv_heads = 3, .head_size = kHeadSize, .dtype = dtype};
    auto buffer = device_->Allocate(pool_.blocks * pool_.layout.block_bytes());
    CHECK(buffer.ok(), "{}", Message(buffer.status()));
    buffer_ = *std::move(buffer);
    pool_.base = buffer_->data();
    std::mt19937 random(7);
    std::normal_distribution<float> normal;
    const int64_t kv_floats = int64_t{context} * 3 * kHeadSize;
    values_.resize(static_cast<size_t>(
        std::max<int64_t>(kv_floats, int64_t{count} * 512 * kQueryHeads * kHeadSize)));
    for (float& value : values_) value = normal(random);
    out_.resize(values_.size());
    for (const std::vector<BlockId>& table : tables_) {
      const AttentionSequence whole = {.rows = context, .block_table = table};
      for (int32_t layer = 0; layer < kLayers; ++layer) {
        device_->ops().StoreKv({&pool_, layer, values_.data(), values_.data(), {&whole, 1}});
      }
    }
  }

  // The last `rows` positions of each of the sequences of `context` tokens.
  void Attend(int32_t context, int32_t rows) {
    std::vector<AttentionSequence> sequences;
    for (const std::vector<BlockId>& table : tables_) {
      const auto row_begin = static_cast<int32_t>(sequences.size()) * rows;
      sequences.push_back({.row_begin = row_begin,
                           .rows = rows,
                           .position_begin = context - rows,
                           .block_table = table});
    }
    for (int32_t layer = 0; layer < kLayers; ++layer) {
      device_->ops().Attention({.pool = &pool_,
                                .layer = layer,
                                .q_heads = kQueryHeads,
                                .q = values_.data(),
                                .out = out_.data(),
                                .sequences = sequences,
                                .scale = 0.125F});
    }
  }
  double TokenBytes() const {
    return static_cast<double>(pool_.layout.block_bytes()) / pool_.layout.tokens_per_block;
  }

 private:
  std::unique_ptr<Device> device_;
  KvPool pool_;
  std::unique_ptr<DeviceBuffer> buffer_;
  std::vector<std::vector<BlockId>> tables_;
  std::vector<float> values_;
  std::vector<float> out_;
};

double Operations(int64_t rows, int64_t context) {
  const double seen = static_cast<double>(rows) *
                      (static_cast<double>(context) - 0.5 * static_cast<double>(rows - 1));
  return seen * kLayers * kQueryHeads * kHeadSize * 2 * 2;
}

// One row of each of some sequences. GB/s counts every byte that a row looks at, shared or not.
void BM_Decode(benchmark::State& state, DType dtype) {
  const auto rows = static_cast<int32_t>(state.range(0));
  const auto context = static_cast<int32_t>(state.range(1));
  Sequences sequences(dtype, rows, context, static_cast<int32_t>(state.range(2)));
  sequences.Attend(context, 1);
  for (auto _ : state) sequences.Attend(context, 1);
  const double bytes = sequences.TokenBytes() * rows * context;
  const auto iterations = static_cast<double>(state.iterations());
  state.counters["GB/s"] =
      benchmark::Counter(bytes * iterations * 1e-9, benchmark::Counter::kIsRate);
  state.counters["of_read"] =
      benchmark::Counter(bytes * iterations / ReadBandwidth(kThreads), benchmark::Counter::kIsRate);
  state.counters["GOP/s"] = benchmark::Counter(1e-9 * rows * Operations(1, context) * iterations,
                                               benchmark::Counter::kIsRate);
}

void BM_Prefill(benchmark::State& state, DType dtype) {
  const auto rows = static_cast<int32_t>(state.range(0));
  const auto context = static_cast<int32_t>(state.range(1));
  Sequences sequences(dtype, 1, context, 0);
  sequences.Attend(context, rows);
  for (auto _ : state) sequences.Attend(context, rows);
  state.counters["GOP/s"] =
      benchmark::Counter(1e-9 * Operations(rows, context) * static_cast<double>(state.iterations()),
                         benchmark::Counter::kIsRate);
}

void Register(const char* name, DType dtype) {
  benchmark::RegisterBenchmark((std::string("BM_Decode/") + name).c_str(), BM_Decode, dtype)
      ->ArgNames({"rows", "context", "shared"})
      ->Args({1, 128, 0})
      ->Args({1, 1500, 0})
      ->Args({1, 6000, 0})
      ->Args({8, 512, 0})
      ->Args({32, 512, 0})
      ->Args({32, 1300, 0})
      ->Args({32, 1300, 1250})
      ->UseRealTime()
      ->Unit(benchmark::kMillisecond);
  benchmark::RegisterBenchmark((std::string("BM_Prefill/") + name).c_str(), BM_Prefill, dtype)
      ->ArgNames({"rows", "context"})
      ->Args({512, 512})
      ->Args({512, 2048})
      ->UseRealTime()
      ->Unit(benchmark::kMillisecond);
}

}  // namespace
}  // namespace polysil

int main(int argc, char** argv) {
  polysil::Register("f16", polysil::DType::kF16);
  polysil::Register("int8", polysil::DType::kI8);
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
