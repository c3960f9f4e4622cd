// The AVX-512 kernels with every instruction emulated by SIMDe: the same source, run on any
// machine.
#define POLYSIL_EMULATED_AVX512
#define SIMDE_ENABLE_NATIVE_ALIASES
#include <simde/x86/avx512.h>

#include <cstdint>
#include <cstring>

// What Debian's SIMDe lacks.
namespace {

template <typename From>
__m512i WidenToInts(__m128i a) {
  From from[16];
  int32_t to[16];
  std::memcpy(from, &a, sizeof(from));
  for (int i = 0; i < 16; ++i) to[i] = from[i];
  return _mm512_loadu_si512(to);
}
__m512i _mm512_cvtepu8_epi32(__m128i a) {
  return WidenToInts<uint8_t>(a);
}
__m512i _mm512_cvtepi8_epi32(__m128i a) {
  return WidenToInts<int8_t>(a);
}

__m512 _mm512_cvtepi32_ps(__m512i a) {
  int32_t from[16];
  float to[16];
  std::memcpy(from, &a, sizeof(from));
  for (int i = 0; i < 16; ++i) to[i] = static_cast<float>(from[i]);
  return _mm512_loadu_ps(to);
}

}  // namespace

#include "kernels/cpu/kernels_avx512.cc"
