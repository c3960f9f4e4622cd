#include <immintrin.h>

#include "kernels/cpu/isa_tables.h"
#include "kernels/cpu/peak_kernels.h"

namespace polysil::kernels {
namespace {

constexpr int kReadSums = 8;
constexpr int kChains = 12;  // two units times a latency of 4 to 5 cycles, and some more

uint64_t Read(const std::byte* data, int64_t bytes) {
  __m512i sums[kReadSums];
  for (auto& sum : sums) sum = _mm512_setzero_si512();
  for (int64_t at = 0; at < bytes; at += kReadSums * 64) {
    for (int i = 0; i < kReadSums; ++i) {
      sums[i] = _mm512_add_epi64(sums[i], _mm512_load_si512(data + at + i * 64));
    }
  }
  uint64_t total = 0;
  for (const auto& sum : sums) {
    alignas(64) uint64_t lanes[8];
    _mm512_store_si512(lanes, sum);
    for (const uint64_t lane : lanes) total += lane;
  }
  return total;
}

double FloatLoops(int64_t loops) {
  __m512 sums[kChains];
  for (auto& sum : sums) sum = _mm512_setzero_ps();
  __m512 a = _mm512_set1_ps(1.0F);
  __m512 b = a;
  for (int64_t n = 0; n < loops; ++n) {
    for (auto& sum : sums) sum = _mm512_fmadd_ps(a, b, sum);
    asm volatile("" : "+v"(a), "+v"(b));
  }
  double total = 0;
  for (const auto& sum : sums) {
    alignas(64) float lanes[16];
    _mm512_store_ps(lanes, sum);
    for (const float lane : lanes) total += lane;
  }
  return total;
}

int64_t Int8Loops(int64_t loops) {
  __m512i sums[kChains];
  for (auto& sum : sums) sum = _mm512_setzero_si512();
  __m512i a = _mm512_set1_epi8(1);
  __m512i b = a;
  for (int64_t n = 0; n < loops; ++n) {
    for (auto& sum : sums) sum = _mm512_dpbusd_epi32(sum, a, b);
    asm volatile("" : "+v"(a), "+v"(b));
  }
  int64_t total = 0;
  for (const auto& sum : sums) {
    alignas(64) int32_t lanes[16];
    _mm512_store_si512(lanes, sum);
    for (const int32_t lane : lanes) total += lane;
  }
  return total;
}

constexpr PeakKernels kPeaks = {.read = Read,
                                .float_operations = kChains * 16 * 2,
                                .float_loops = FloatLoops,
                                .int8_operations = kChains * 64 * 2,
                                .int8_loops = Int8Loops};

}  // namespace

const PeakKernels& Avx512Peaks() {
  return kPeaks;
}

}  // namespace polysil::kernels
