// Random draws as a function, not a stream: Philox4x32-10 (Salmon et al., 2011) of a key and a
// counter. What a token's draw is depends on the request's seed, the sequence and the position, and
// on nothing that happened before.
#pragma once

#include <array>
#include <cstdint>

namespace polysil {

using PhiloxKey = std::array<uint32_t, 2>;
using PhiloxBlock = std::array<uint32_t, 4>;

PhiloxBlock Philox4x32(PhiloxBlock counter, PhiloxKey key);

// Uniform in [0, 1), 53 bits.
double UniformDraw(uint64_t seed, int32_t sequence_index, int32_t position);

}  // namespace polysil
