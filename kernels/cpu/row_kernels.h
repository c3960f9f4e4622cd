// Row kernels: norms, activations, rope and conversions over Lanes, as templates for every
// instruction set. Internal linkage, as in lanes.h. A count that is no multiple of sixteen ends in
// one padded group, so an element's result depends on nothing but its own inputs.
#pragma once

#include <cstdint>
#include <cstring>

#include "kernels/cpu/lanes.h"

namespace polysil::kernels {
namespace {

// Calls group(from index, count up to 16) for each sixteen of `count`.
template <typename Group>
[[gnu::always_inline]] inline void ForSixteens(int64_t count, const Group& group) {
  int64_t i = 0;
  for (; i + 16 <= count; i += 16) group(i, 16);
  if (i < count) group(i, static_cast<int>(count - i));
}

[[gnu::always_inline]] inline Sixteen LoadSome(const float* from, int count) {
  if (count == 16) return Sixteen::Load(from);
  float padded[16] = {};
  std::memcpy(padded, from, static_cast<size_t>(count) * sizeof(float));
  return Sixteen::Load(padded);
}

[[gnu::always_inline]] inline void StoreSome(const Sixteen& lanes, float* to, int count) {
  if (count == 16) return lanes.Store(to);
  float padded[16];
  lanes.Store(padded);
  std::memcpy(to, padded, static_cast<size_t>(count) * sizeof(float));
}

float SumOfSquares(const float* x, int64_t cols) {
  Sixteen sums = Sixteen::Broadcast(0.0F);
  ForSixteens(cols, [&](int64_t i, int count) {
    const Sixteen value = LoadSome(x + i, count);
    sums = sums + value * value;
  });
  return Sum(sums);
}

void RmsNormRow(const float* x, const float* weight, float weight_offset, float eps, int64_t cols,
                float* out) {
  const float mean = SumOfSquares(x, cols) / static_cast<float>(cols);
  const Sixteen factor = Sixteen::Broadcast(1.0F / __builtin_sqrtf(mean + eps));
  const Sixteen offset = Sixteen::Broadcast(weight_offset);
  ForSixteens(cols, [&](int64_t i, int count) {
    const Sixteen gain = LoadSome(weight + i, count) + offset;
    StoreSome(LoadSome(x + i, count) * factor * gain, out + i, count);
  });
}

void GatedSilu(const float* gate, const float* up, int64_t count, float* out) {
  ForSixteens(count, [&](int64_t i, int some) {
    const Sixteen g = LoadSome(gate + i, some);
    StoreSome(g * Sigmoid(g) * LoadSome(up + i, some), out + i, some);
  });
}

// 0.5 g (1 + tanh(u)) = g sigmoid(2u) with u = sqrt(2 / pi) (g + 0.044715 g^3).
void GatedGeluTanh(const float* gate, const float* up, int64_t count, float* out) {
  const Sixteen cubic = Sixteen::Broadcast(0.044715F);
  const Sixteen one = Sixteen::Broadcast(1.0F);
  const Sixteen factor = Sixteen::Broadcast(2.0F * 0.797884561F);
  ForSixteens(count, [&](int64_t i, int some) {
    const Sixteen g = LoadSome(gate + i, some);
    const Sixteen twice_u = factor * (g * (one + cubic * (g * g)));
    StoreSome(g * Sigmoid(twice_u) * LoadSome(up + i, some), out + i, some);
  });
}

void SoftCapRow(float* x, float cap, int64_t count) {
  const Sixteen limit = Sixteen::Broadcast(cap);
  ForSixteens(count, [&](int64_t i, int some) {
    StoreSome(limit * Tanh(LoadSome(x + i, some) / limit), x + i, some);
  });
}

void AddRow(float* x, const float* y, int64_t count) {
  for (int64_t i = 0; i < count; ++i) x[i] += y[i];
}

void ScaleRow(float* x, float factor, int64_t count) {
  for (int64_t i = 0; i < count; ++i) x[i] *= factor;
}

// Turns pairs (i, i + pairs) of each head by the angles whose cosines and sines are given.
void RopeHalves(float* x, int32_t heads, int32_t head_size, int32_t pairs, const float* cosines,
                const float* sines) {
  for (int32_t h = 0; h < heads; ++h, x += head_size) {
    float* first = x;
    float* second = x + pairs;
    for (int32_t i = 0; i < pairs; ++i) {
      const float a = first[i];
      const float b = second[i];
      first[i] = a * cosines[i] - b * sines[i];
      second[i] = a * sines[i] + b * cosines[i];
    }
  }
}

// Turns pairs (2i, 2i + 1).
void RopeAdjacent(float* x, int32_t heads, int32_t head_size, int32_t pairs, const float* cosines,
                  const float* sines) {
  for (int32_t h = 0; h < heads; ++h, x += head_size) {
    for (int32_t i = 0; i < pairs; ++i) {
      const float a = x[2 * i];
      const float b = x[2 * i + 1];
      x[2 * i] = a * cosines[i] - b * sines[i];
      x[2 * i + 1] = a * sines[i] + b * cosines[i];
    }
  }
}

void FloatsToHalves(const float* from, int64_t count, uint16_t* to) {
  ForSixteens(count, [&](int64_t i, int some) {
    if (some == 16) return StoreHalves(Sixteen::Load(from + i), to + i);
    uint16_t padded[16];
    StoreHalves(LoadSome(from + i, some), padded);
    std::memcpy(to + i, padded, static_cast<size_t>(some) * sizeof(uint16_t));
  });
}

}  // namespace
}  // namespace polysil::kernels
