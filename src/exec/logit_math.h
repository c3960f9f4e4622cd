// The sampler's arithmetic over a whole row of logits: plain loops that compilers turn into vector
// instructions, in an order that does not depend on the machine. Pure functions.
#pragma once

#include <cstdint>
#include <span>

namespace polysil::logit_math {

// Values that are looked at together; sums and maxima are kept per block.
constexpr int64_t kBlock = 64;

bool AllFinite(std::span<const float> values);

// The largest value; -inf for none. NaN is not looked for.
float Max(std::span<const float> values);

// maxima[i] is the largest of block i.
void BlockMaxima(std::span<const float> values, std::span<float> maxima);

// e^x for x <= 0, relative error below 2e-7; exactly 1 at 0, 0 below -80 (and at -inf).
float ExpNonPositive(float x);

// weights[i] = e^((values[i] - largest) / temperature). block_sums[i] is the sum of block i.
void Weigh(std::span<const float> values, float largest, float temperature,
           std::span<float> weights, std::span<double> block_sums);

// log(sum(e^values)), in double.
double LogSumExp(std::span<const float> values, float largest);

}  // namespace polysil::logit_math
