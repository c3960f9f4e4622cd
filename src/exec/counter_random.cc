#include "exec/counter_random.h"

namespace polysil {

PhiloxBlock Philox4x32(PhiloxBlock counter, PhiloxKey key) {
  constexpr int kRounds = 10;
  for (int round = 0; round < kRounds; ++round) {
    const uint64_t a = uint64_t{0xD2511F53U} * counter[0];
    const uint64_t b = uint64_t{0xCD9E8D57U} * counter[2];
    counter = {static_cast<uint32_t>(b >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(b),
               static_cast<uint32_t>(a >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(a)};
    key[0] += 0x9E3779B9U;  // the golden ratio and sqrt(3) - 1, as 0.32 fixed point
    key[1] += 0xBB67AE85U;
  }
  return counter;
}

double UniformDraw(uint64_t seed, int32_t sequence_index, int32_t position) {
  const PhiloxBlock block =
      Philox4x32({static_cast<uint32_t>(position), static_cast<uint32_t>(sequence_index), 0, 0},
                 {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
  const uint64_t bits = (uint64_t{block[1]} << 32) | block[0];
  return static_cast<double>(bits >> 11) * 0x1p-53;
}

}  // namespace polysil
