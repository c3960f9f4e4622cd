#include <immintrin.h>

#include "kernels/cpu/isa_tables.h"
#include "kernels/cpu/peak_kernels.h"

namespace polysil::kernels {
namespace {

constexpr int kReadSums = 8;
// Two units times a latency of 4 to 5 cycles, within 16 registers.
constexpr int kFloatChains = 10;
constexpr int kInt8Chains = 8;

uint64_t Read(const std::byte* data, int64_t bytes) {
  __m256i sums[kReadSums];
  for (auto& sum : sums) sum = _mm256_setzero_si256();
  for (int64_t at = 0; at < bytes; at += kReadSums * 32) {
    for (int i = 0; i < kReadSums; ++i) {
      const auto* from = reinterpret_cast<const __m256i*>(data + at + i * 32);
      sums[i] = _mm256_add_epi64(sums[i], _mm256_load_si256(from));
    }
  }
  uint64_t total = 0;
  for (const auto& sum : sums) {
    alignas(32) uint64_t lanes[4];
    _mm256_store_si256(reinterpret_cast<__m256i*>(lanes), sum);
    for (const uint64_t lane : lanes) total += lane;
  }
  return total;
}

double FloatLoops(int64_t loops) {
  __m256 sums[kFloatChains];
  for (auto& sum : sums) sum = _mm256_setzero_ps();
  __m256 a = _mm256_set1_ps(1.0F);
  __m256 b = a;
  for (int64_t n = 0; n < loops; ++n) {
    for (auto& sum : sums) sum = _mm256_fmadd_ps(a, b, sum);
    asm volatile("" : "+x"(a), "+x"(b));
  }
  double total = 0;
  for (const auto& sum : sums) {
    alignas(32) float lanes[8];
    _mm256_store_ps(lanes, sum);
    for (const float lane : lanes) total += lane;
  }
  return total;
}

int64_t Int8Loops(int64_t loops) {
  __m256i sums[kInt8Chains];
  for (auto& sum : sums) sum = _mm256_setzero_si256();
  __m256i a = _mm256_set1_epi8(1);
  const __m256i b = a;
  const __m256i ones = _mm256_set1_epi16(1);
  for (int64_t n = 0; n < loops; ++n) {
    for (auto& sum : sums) {
      // The compiler must not see that the products of all chains are the same.
      asm volatile("" : "+x"(a));
      sum = _mm256_add_epi32(sum, _mm256_madd_epi16(_mm256_maddubs_epi16(a, b), ones));
    }
  }
  int64_t total = 0;
  for (const auto& sum : sums) {
    alignas(32) int32_t lanes[8];
    _mm256_store_si256(reinterpret_cast<__m256i*>(lanes), sum);
    for (const int32_t lane : lanes) total += lane;
  }
  return total;
}

constexpr PeakKernels kPeaks = {.read = Read,
                                .float_operations = kFloatChains * 8 * 2,
                                .float_loops = FloatLoops,
                                .int8_operations = kInt8Chains * 32 * 2,
                                .int8_loops = Int8Loops};

}  // namespace

const PeakKernels& Avx2Peaks() {
  return kPeaks;
}

}  // namespace polysil::kernels
