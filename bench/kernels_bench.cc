// Kernels alone, one thread, data in the cache: what each instruction set makes of its arithmetic.
// The device's share of the memory bandwidth is measured by device_bench.cc.
//
//   ninja bench_kernels && bin/bench_kernels [--benchmark_filter=...]
#include <benchmark/benchmark.h>

#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "kernels/kernels.h"

namespace polysil::kernels {
namespace {

constexpr int64_t kCols = 512;
constexpr int64_t kPanels = 8;

std::vector<float> RandomFloats(int64_t count) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = normal(random);
  return values;
}

// Random bits without the exponents that would make a float or a scale infinite, or (in floats) so
// small that the hardware traps.
std::vector<std::byte> RandomBlocks(WeightType type, int64_t bytes) {
  std::mt19937 random(3);
  std::vector<std::byte> blocks(static_cast<size_t>(bytes));
  for (std::byte& byte : blocks) byte = static_cast<std::byte>(random() & 0x3B);
  if (BlockOf(type).values > 1) return blocks;
  const auto element = static_cast<size_t>(BlockOf(type).bytes);
  for (size_t i = element - 1; i < blocks.size(); i += element) blocks[i] |= std::byte{0x38};
  return blocks;
}

void BM_Product(benchmark::State& state, Isa isa, WeightType type) {
  const int64_t rows = state.range(0);
  const CpuKernels& kernels = KernelsFor(isa);
  const PanelFormat& format = kernels.format(type, false);
  const WeightBlock size = BlockOf(type);
  const int64_t row_bytes = kCols / size.values * size.bytes;
  const auto from = RandomBlocks(type, row_bytes * kernels.panel_rows);
  std::vector<std::byte> panels(static_cast<size_t>(kPanels * format.panel_bytes(kCols)));
  for (int64_t p = 0; p < kPanels; ++p) {
    format.pack(type, from.data(), row_bytes, kernels.panel_rows, kCols,
                panels.data() + p * format.panel_bytes(kCols));
  }
  const std::vector<float> x = RandomFloats(rows * kCols);
  constexpr int64_t kBlocks = kCols / kActivationBlock;
  std::vector<Int8Block> int8(static_cast<size_t>(rows * kBlocks));
  std::vector<ActivationOutlier> outliers(static_cast<size_t>(rows * RowOutliersMax(kCols)));
  std::vector<int32_t> counts(static_cast<size_t>(rows));
  std::vector<Int16Block> int16(static_cast<size_t>(rows * kBlocks));
  for (int64_t r = 0; r < rows; ++r) {
    counts[r] = kernels.quantise_int8(x.data() + r * kCols, kCols, int8.data() + r * kBlocks,
                                      outliers.data() + r * RowOutliersMax(kCols));
    kernels.quantise_int16(x.data() + r * kCols, kCols, int16.data() + r * kBlocks);
  }
  const Activations activations = {.cols = kCols,
                                   .floats = x.data(),
                                   .int8_blocks = int8.data(),
                                   .outliers = outliers.data(),
                                   .outlier_counts = counts.data(),
                                   .int16_blocks = int16.data()};
  std::vector<float> out(static_cast<size_t>(rows * kernels.panel_rows));
  for (auto _ : state) {
    for (int64_t p = 0; p < kPanels; ++p) {
      format.multiply(panels.data() + p * format.panel_bytes(kCols), activations, 0, rows,
                      {out.data(), kernels.panel_rows, kernels.panel_rows, nullptr, false});
    }
    benchmark::DoNotOptimize(out.data());
  }
  const auto products = static_cast<double>(rows * kPanels * kernels.panel_rows * kCols) *
                        static_cast<double>(state.iterations());
  state.counters["GOP/s"] = benchmark::Counter(2e-9 * products, benchmark::Counter::kIsRate);
}

template <typename Run>
void PerRow(benchmark::State& state, const Run& run) {
  for (auto _ : state) run();
  state.counters["Gvalues/s"] = benchmark::Counter(
      1e-9 * kCols * static_cast<double>(state.iterations()), benchmark::Counter::kIsRate);
}

void BM_Rows(benchmark::State& state, Isa isa, const std::string& kernel) {
  const CpuKernels& kernels = KernelsFor(isa);
  const std::vector<float> x = RandomFloats(kCols);
  std::vector<float> out(kCols);
  std::vector<Int8Block> int8(kCols / kActivationBlock);
  std::vector<ActivationOutlier> outliers(static_cast<size_t>(RowOutliersMax(kCols)));
  std::vector<Int16Block> int16(kCols / kActivationBlock);
  if (kernel == "rms_norm") {
    PerRow(state, [&] { kernels.rms_norm(x.data(), x.data(), 0, 1e-5F, kCols, out.data()); });
  } else if (kernel == "gated_silu") {
    PerRow(state, [&] { kernels.gated_silu(x.data(), x.data(), kCols, out.data()); });
  } else if (kernel == "quantise_int8") {
    PerRow(state, [&] { kernels.quantise_int8(x.data(), kCols, int8.data(), outliers.data()); });
  } else {
    PerRow(state, [&] { kernels.quantise_int16(x.data(), kCols, int16.data()); });
  }
}

struct TypeName {
  WeightType type;
  const char* name;
};
constexpr TypeName kTypes[] = {
    {WeightType::kF32, "F32"},   {WeightType::kF16, "F16"},       {WeightType::kBF16, "BF16"},
    {WeightType::kQ8_0, "Q8_0"}, {WeightType::kQ4_0, "Q4_0"},     {WeightType::kQ4_1, "Q4_1"},
    {WeightType::kQ5_1, "Q5_1"}, {WeightType::kQ2_K, "Q2_K"},     {WeightType::kQ4_K, "Q4_K"},
    {WeightType::kQ6_K, "Q6_K"}, {WeightType::kIQ4_NL, "IQ4_NL"}, {WeightType::kMXFP4, "MXFP4"},
};

void RegisterAll() {
  constexpr struct {
    Isa isa;
    const char* name;
  } kIsas[] = {{Isa::kPortable, "portable"}, {Isa::kAvx2, "avx2"}, {Isa::kAvx512, "avx512"}};
  for (const auto& isa : kIsas) {
    if (!Runs(isa.isa)) continue;
    const std::string suffix = std::string("/") + isa.name + "/";
    for (const TypeName& type : kTypes) {
      benchmark::RegisterBenchmark(("BM_Product" + suffix + type.name).c_str(), BM_Product, isa.isa,
                                   type.type)
          ->Arg(1)
          ->Arg(4)
          ->Arg(12)
          ->ArgName("rows");
    }
    for (const char* kernel : {"rms_norm", "gated_silu", "quantise_int8", "quantise_int16"}) {
      benchmark::RegisterBenchmark(("BM_Rows" + suffix + kernel).c_str(), BM_Rows, isa.isa,
                                   std::string(kernel));
    }
  }
}

}  // namespace
}  // namespace polysil::kernels

int main(int argc, char** argv) {
  polysil::kernels::RegisterAll();
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
