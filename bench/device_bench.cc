// What the CPU device reaches of the machine: bytes of weights per second in single-row products as
// a fraction of the read bandwidth measured in the same run, and operations per second in products
// of many rows. Shapes are those of SmolLM2-135M: 30 layers, width 576, feed-forward 1536,
// vocabulary 49152.
//
//   ninja bench_device && bin/bench_device [--benchmark_filter=...]
#include <benchmark/benchmark.h>

#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "bench/read_bandwidth.h"
#include "device/cpu/cpu_device.h"
#include "polysil/base/check.h"

namespace polysil {
namespace {

constexpr int32_t kThreadsMax = 2;

// Weights of any bits with moderate scales: whole blocks of a type.
std::vector<std::byte> RandomBlocks(DType dtype, int64_t values) {
  std::mt19937 random(static_cast<uint32_t>(dtype));
  const DTypeInfo& info = Info(dtype);
  std::vector<std::byte> bytes(
      static_cast<size_t>(values / info.values_per_block * info.bytes_per_block));
  for (size_t i = 0; i + 4 <= bytes.size(); i += 4) {
    const auto bits = static_cast<uint32_t>(random());
    std::memcpy(bytes.data() + i, &bits, 4);
  }
  if (dtype != DType::kF32) return bytes;
  for (size_t i = 0; i < bytes.size(); i += 4) {
    const float value = static_cast<float>(random()) * 0x1p-32F - 0.5F;
    std::memcpy(bytes.data() + i, &value, 4);
  }
  return bytes;
}

std::vector<float> RandomFloats(int64_t count) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = normal(random);
  // As in models: a value that stands out in every sixth block of 32.
  for (size_t i = 0; i < values.size(); i += 6 * 32) values[i] *= 10.0F;
  return values;
}

std::unique_ptr<Device> MakeDevice(int32_t threads) {
  auto device = CreateCpuDevice({.threads = threads});
  CHECK(device.ok(), "{}", Message(device.status()));
  return *std::move(device);
}

std::unique_ptr<WeightMatrix> LoadRandom(Device& device, DType dtype, int64_t rows, int64_t cols,
                                         std::vector<std::vector<std::byte>>& keep) {
  keep.push_back(RandomBlocks(dtype, rows * cols));
  auto matrix = device.LoadMatrix({dtype, rows, cols, keep.back().data()});
  CHECK(matrix.ok(), "{}", Message(matrix.status()));
  return *std::move(matrix);
}

int64_t BytesOf(DType dtype, int64_t values) {
  return values / Info(dtype).values_per_block * Info(dtype).bytes_per_block;
}

// --- The bound: what the threads read from memory ---

void BM_ReadBandwidth(benchmark::State& state) {
  double total = 0;
  for (auto _ : state) total += ReadBandwidth(static_cast<int32_t>(state.range(0)));
  state.counters["GB/s"] = total / static_cast<double>(state.iterations()) * 1e-9;
}
BENCHMARK(BM_ReadBandwidth)->Arg(1)->Arg(kThreadsMax)->Iterations(3)->ArgName("threads");

// --- One row against a matrix that no cache holds ---

void BM_Decode(benchmark::State& state, DType dtype) {
  const auto threads = static_cast<int32_t>(state.range(0));
  const auto device = MakeDevice(threads);
  std::vector<std::vector<std::byte>> keep;
  constexpr int64_t kRows = 49152;
  constexpr int64_t kCols = 2048;
  const auto matrix = LoadRandom(*device, dtype, kRows, kCols, keep);
  const std::vector<float> x = RandomFloats(kCols);
  std::vector<float> y(kRows);
  const LinearTarget target = {.weight = matrix.get(), .out = y.data(), .out_stride = kRows};
  device->ops().Linear(x.data(), 1, kCols, {&target, 1});
  for (auto _ : state) device->ops().Linear(x.data(), 1, kCols, {&target, 1});
  const auto bytes = static_cast<double>(BytesOf(dtype, kRows * kCols) * state.iterations());
  state.counters["GB/s"] = benchmark::Counter(bytes * 1e-9, benchmark::Counter::kIsRate);
  state.counters["of_read"] =
      benchmark::Counter(bytes / ReadBandwidth(threads), benchmark::Counter::kIsRate);
}

// --- All products of a SmolLM2 step ---

struct Layers {
  explicit Layers(Device& device) {
    for (int i = 0; i < 30; ++i) {
      q.push_back(LoadRandom(device, DType::kQ4_1, 576, 576, keep));
      k.push_back(LoadRandom(device, DType::kQ4_1, 192, 576, keep));
      v.push_back(LoadRandom(device, DType::kQ4_1, 192, 576, keep));
      o.push_back(LoadRandom(device, DType::kQ4_1, 576, 576, keep));
      gate.push_back(LoadRandom(device, DType::kQ4_1, 1536, 576, keep));
      up.push_back(LoadRandom(device, DType::kQ4_1, 1536, 576, keep));
      down.push_back(LoadRandom(device, DType::kQ4_1, 576, 1536, keep));
    }
    head.push_back(LoadRandom(device, DType::kQ8_0, 49152, 576, keep));
  }

  void Run(Ops& ops, int64_t rows, int64_t head_rows) {
    const auto product = [&](const std::vector<float>& x, int64_t count, int64_t cols,
                             std::initializer_list<const WeightMatrix*> weights) {
      LinearTarget targets[3];
      size_t n = 0;
      int64_t at = 0;
      for (const WeightMatrix* weight : weights) {
        targets[n++] = {.weight = weight, .out = y.data() + at, .out_stride = 49152};
        at += weight->rows();
      }
      ops.Linear(x.data(), count, cols, {targets, n});
    };
    y.resize(static_cast<size_t>(rows * 49152));
    narrow = RandomFloats(rows * 576);
    wide = RandomFloats(rows * 1536);
    for (size_t i = 0; i < 30; ++i) {
      product(narrow, rows, 576, {q[i].get(), k[i].get(), v[i].get()});
      product(narrow, rows, 576, {o[i].get()});
      product(narrow, rows, 576, {gate[i].get(), up[i].get()});
      product(wide, rows, 1536, {down[i].get()});
    }
    product(narrow, head_rows, 576, {head[0].get()});
  }

  using Matrices = std::vector<std::unique_ptr<WeightMatrix>>;
  std::vector<std::vector<std::byte>> keep;
  Matrices q, k, v, o, gate, up, down, head;
  std::vector<float> narrow, wide, y;
};

constexpr int64_t kLayerValues = 30 * (2 * 576 * 576 + 2 * 192 * 576 + 3 * 1536 * 576);
constexpr int64_t kHeadValues = int64_t{49152} * 576;

void BM_SmolDecodeProducts(benchmark::State& state) {
  const auto threads = static_cast<int32_t>(state.range(0));
  const auto device = MakeDevice(threads);
  Layers layers(*device);
  layers.Run(device->ops(), 1, 1);
  for (auto _ : state) layers.Run(device->ops(), 1, 1);
  const auto bytes = static_cast<double>(
      (BytesOf(DType::kQ4_1, kLayerValues) + BytesOf(DType::kQ8_0, kHeadValues)) *
      state.iterations());
  state.counters["GB/s"] = benchmark::Counter(bytes * 1e-9, benchmark::Counter::kIsRate);
  state.counters["of_read"] =
      benchmark::Counter(bytes / ReadBandwidth(threads), benchmark::Counter::kIsRate);
  state.counters["tok/s"] =
      benchmark::Counter(static_cast<double>(state.iterations()), benchmark::Counter::kIsRate);
}
BENCHMARK(BM_SmolDecodeProducts)
    ->Arg(1)
    ->Arg(kThreadsMax)
    ->ArgName("threads")
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);

void BM_SmolPrefillProducts(benchmark::State& state) {
  const auto device = MakeDevice(static_cast<int32_t>(state.range(0)));
  const int64_t rows = state.range(1);
  Layers layers(*device);
  layers.Run(device->ops(), rows, 1);
  for (auto _ : state) layers.Run(device->ops(), rows, 1);
  const auto operations =
      static_cast<double>(2 * (kLayerValues * rows + kHeadValues) * state.iterations());
  state.counters["GOP/s"] = benchmark::Counter(operations * 1e-9, benchmark::Counter::kIsRate);
  state.counters["tok/s"] = benchmark::Counter(static_cast<double>(rows * state.iterations()),
                                               benchmark::Counter::kIsRate);
}
BENCHMARK(BM_SmolPrefillProducts)
    ->ArgsProduct({{1, kThreadsMax}, {4, 32, 512}})
    ->ArgNames({"threads", "rows"})
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);

void RegisterDecode() {
  for (const DType dtype :
       {DType::kF32, DType::kF16, DType::kBF16, DType::kQ8_0, DType::kQ4_0, DType::kQ4_1,
        DType::kQ5_0, DType::kQ5_1, DType::kQ2_K, DType::kQ3_K, DType::kQ4_K, DType::kQ5_K,
        DType::kQ6_K, DType::kIQ4_NL, DType::kIQ4_XS, DType::kMXFP4}) {
    const std::string name = "BM_Decode/" + std::string(Info(dtype).name);
    benchmark::RegisterBenchmark(name.c_str(), BM_Decode, dtype)
        ->Arg(kThreadsMax)
        ->ArgName("threads")
        ->UseRealTime()
        ->Unit(benchmark::kMillisecond);
  }
}

}  // namespace
}  // namespace polysil

int main(int argc, char** argv) {
  polysil::RegisterDecode();
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
