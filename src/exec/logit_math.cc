#include "exec/logit_math.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace polysil::logit_math {
namespace {

constexpr int kLanes = 8;

// e^x = 2^n * e^r with |r| <= ln(2) / 2. Comparisons are made on the bits, as integers: compilers
// keep loops with floating-point comparisons scalar, for the sake of their exceptions.
[[gnu::always_inline]] inline float Exp(float x) {
  constexpr int32_t kSign = std::numeric_limits<int32_t>::min();
  constexpr int32_t kLeast = std::bit_cast<int32_t>(80.0F);
  constexpr float kLog2E = 1.44269504F;
  constexpr float kLn2High = 0.693359375F;    // exact in 10 bits: n * kLn2High is exact
  constexpr float kLn2Low = -2.12194440e-4F;  // ln(2) - kLn2High
  constexpr float kRounder = 12582912.0F;     // 1.5 * 2^23: adding it rounds to an integer
  const int32_t magnitude = std::bit_cast<int32_t>(x) & ~kSign;
  const int32_t keep = magnitude > kLeast ? 0 : -1;  // 0 for infinity and NaN too
  const float clamped = std::bit_cast<float>((magnitude & keep) | kSign);
  const float shifted = clamped * kLog2E + kRounder;
  const float n = shifted - kRounder;
  const float r = (clamped - n * kLn2High) - n * kLn2Low;
  float p = 1.0F / 5040.0F;
  p = p * r + 1.0F / 720.0F;
  p = p * r + 1.0F / 120.0F;
  p = p * r + 1.0F / 24.0F;
  p = p * r + 1.0F / 6.0F;
  p = p * r + 0.5F;
  p = p * r + 1.0F;
  p = p * r + 1.0F;
  const int32_t exponent = std::bit_cast<int32_t>(shifted) - std::bit_cast<int32_t>(kRounder);
  const float scaled = p * std::bit_cast<float>((exponent + 127) << 23);
  return std::bit_cast<float>(std::bit_cast<int32_t>(scaled) & keep);
}

[[gnu::always_inline]] inline double SumLanes(const float* values, int64_t count) {
  double lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (int lane = 0; lane < kLanes; ++lane) lanes[lane] += static_cast<double>(values[i + lane]);
  }
  for (int lane = 0; i < count; ++i, ++lane) lanes[lane] += static_cast<double>(values[i]);
  double sum = 0.0;
  for (const double lane : lanes) sum += lane;
  return sum;
}

[[gnu::always_inline]] inline float MaxOf(std::span<const float> values) {
  float lanes[kLanes];
  std::fill(lanes, lanes + kLanes, -std::numeric_limits<float>::infinity());
  size_t i = 0;
  for (; i + kLanes <= values.size(); i += kLanes) {
    for (int lane = 0; lane < kLanes; ++lane) {
      lanes[lane] = values[i + lane] > lanes[lane] ? values[i + lane] : lanes[lane];
    }
  }
  for (; i < values.size(); ++i) lanes[0] = values[i] > lanes[0] ? values[i] : lanes[0];
  return *std::max_element(lanes, lanes + kLanes);
}

// --- The loops, each compiled for every machine and once more for AVX2: the same operations in the
// same order, so the same bits. ---

struct AllFiniteLoop {
  [[gnu::always_inline]] static bool Run(std::span<const float> values) {
    // A float is not finite where all bits of the exponent are set.
    constexpr uint32_t kExponent = 0x7f800000U;
    uint32_t found = 0;
    for (const float value : values) {
      found |= (std::bit_cast<uint32_t>(value) & kExponent) == kExponent ? 1U : 0U;
    }
    return found == 0;
  }
};

struct BlockMaximaLoop {
  [[gnu::always_inline]] static void Run(std::span<const float> values, std::span<float> maxima) {
    for (size_t block = 0; block < maxima.size(); ++block) {
      const size_t begin = block * kBlock;
      maxima[block] = MaxOf(values.subspan(begin, std::min<size_t>(kBlock, values.size() - begin)));
    }
  }
};

struct WeighLoop {
  [[gnu::always_inline]] static void Run(std::span<const float> values, float largest,
                                         float temperature, std::span<float> weights,
                                         std::span<double> block_sums) {
    const auto count = static_cast<int64_t>(values.size());
    const float* in = values.data();
    float* out = weights.data();
    // Divided, not multiplied by the inverse: that is infinite for the smallest temperatures.
    for (int64_t i = 0; i < count; ++i) out[i] = Exp((in[i] - largest) / temperature);
    for (int64_t begin = 0; begin < count; begin += kBlock) {
      block_sums[begin / kBlock] = SumLanes(out + begin, std::min(kBlock, count - begin));
    }
  }
};

struct SumExpLoop {
  [[gnu::always_inline]] static double Run(std::span<const float> values, float largest) {
    double sum = 0.0;
    float weights[kBlock];
    for (size_t begin = 0; begin < values.size(); begin += kBlock) {
      const auto count = static_cast<int64_t>(std::min<size_t>(kBlock, values.size() - begin));
      for (int64_t i = 0; i < count; ++i) weights[i] = Exp(values[begin + i] - largest);
      sum += SumLanes(weights, count);
    }
    return sum;
  }
};

#if defined(__x86_64__)
template <typename Loop, typename... Args>
[[gnu::target("avx2")]] auto RunAvx2(Args... args) {
  return Loop::Run(args...);
}
#endif

template <typename Loop, typename... Args>
auto Run(Args... args) {
#if defined(__x86_64__)
  static const bool has_avx2 = __builtin_cpu_supports("avx2") != 0;
  if (has_avx2) return RunAvx2<Loop, Args...>(args...);
#endif
  return Loop::Run(args...);
}

}  // namespace

bool AllFinite(std::span<const float> values) {
  return Run<AllFiniteLoop>(values);
}

float Max(std::span<const float> values) {
  return MaxOf(values);
}

void BlockMaxima(std::span<const float> values, std::span<float> maxima) {
  Run<BlockMaximaLoop>(values, maxima);
}

float ExpNonPositive(float x) {
  return Exp(x);
}

void Weigh(std::span<const float> values, float largest, float temperature,
           std::span<float> weights, std::span<double> block_sums) {
  Run<WeighLoop>(values, largest, temperature, weights, block_sums);
}

double LogSumExp(std::span<const float> values, float largest) {
  return static_cast<double>(largest) + std::log(Run<SumExpLoop>(values, largest));
}

}  // namespace polysil::logit_math
