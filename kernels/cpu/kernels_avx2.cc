// AVX2, FMA-less on purpose: see cpu_kernels.h. Compiled with -mavx2 -mf16c.
#include <immintrin.h>

#include "kernels/cpu/isa_tables.h"
#include "kernels/cpu/kernel_table.h"

namespace polysil::kernels {
namespace {

struct Avx2 {
  static constexpr int kLanes = 8;
  using Bytes = __m256i;
  using Ints = __m256i;
  struct WideBytes {  // as int16: lanes 0, 1, 4, 5 and lanes 2, 3, 6, 7
    __m256i low;
    __m256i high;
  };

  static Bytes Load(const uint8_t* from) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  }
  static Bytes And(Bytes a, int mask) {
    return _mm256_and_si256(a, _mm256_set1_epi8(static_cast<char>(mask)));
  }
  static Bytes Or(Bytes a, Bytes b) { return _mm256_or_si256(a, b); }
  static Ints ShiftLeft(Ints a, int bits) { return _mm256_slli_epi32(a, bits); }
  static Ints ShiftRight(Ints a, int bits) { return _mm256_srli_epi32(a, bits); }
  static Ints AddInts(Ints a, Ints b) { return _mm256_add_epi32(a, b); }
  static Ints SubtractShifted(Ints a, int32_t b, int bits) {
    return _mm256_sub_epi32(a, _mm256_slli_epi32(_mm256_set1_epi32(b), bits));
  }
  static Bytes LookUp(const uint8_t* table, Bytes indices) {
    const __m128i book = _mm_loadu_si128(reinterpret_cast<const __m128i*>(table));
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(book), indices);
  }
  static Lanes<8> ToFloats(Ints a) { return {{_mm256_cvtepi32_ps(a)}}; }
  static Lanes<8> LoadUnsigned(const uint8_t* from) {
    const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(from));
    return ToFloats(_mm256_cvtepu8_epi32(bytes));
  }
  static Lanes<8> LoadSigned(const uint8_t* from) {
    const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(from));
    return ToFloats(_mm256_cvtepi8_epi32(bytes));
  }
  static WideBytes Widen(Bytes a) {
    const __m256i zero = _mm256_setzero_si256();
    return {_mm256_unpacklo_epi8(a, zero), _mm256_unpackhi_epi8(a, zero)};
  }

  // Sums of kWords products of 4 unsigned bytes below kValueMax with 4 signed ones. A pair of
  // products is at most 2 * kValueMax * 128, and kRun pairs fit 16 bits.
  template <int kValueMax, int kWords>
  struct Int8Sum {
    static constexpr int kFit = 32767 / (2 * kValueMax * 128);
    static constexpr int kRun = kFit >= kWords ? kWords : kFit >= 4 ? 4 : kFit >= 2 ? 2 : 1;
    static_assert(kFit >= 1);
    __m256i pairs;
    __m256i total;

    void Add(int i, Bytes word, const int8_t* x) {
      int32_t four;
      std::memcpy(&four, x, sizeof(four));
      const __m256i products = _mm256_maddubs_epi16(word, _mm256_set1_epi32(four));
      pairs = i % kRun == 0 ? products : _mm256_add_epi16(pairs, products);
      if (i % kRun != kRun - 1) return;
      const __m256i sums = _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
      total = i < kRun ? sums : _mm256_add_epi32(total, sums);
    }
    Ints Total() const { return total; }
  };

  // Sums of products of 4 bytes with 4 values of 16 bits.
  struct Int16Sum {
    __m256i low;
    __m256i high;

    void Add(int i, const WideBytes& word, const int16_t* x) {
      int64_t four;
      std::memcpy(&four, x, sizeof(four));
      const __m256i values = _mm256_set1_epi64x(four);
      const __m256i products_low = _mm256_madd_epi16(word.low, values);
      const __m256i products_high = _mm256_madd_epi16(word.high, values);
      low = i == 0 ? products_low : _mm256_add_epi32(low, products_low);
      high = i == 0 ? products_high : _mm256_add_epi32(high, products_high);
    }
    Ints Total() const {
      const __m256 a = _mm256_castsi256_ps(low);
      const __m256 b = _mm256_castsi256_ps(high);
      return _mm256_add_epi32(_mm256_castps_si256(_mm256_shuffle_ps(a, b, 0x88)),
                              _mm256_castps_si256(_mm256_shuffle_ps(a, b, 0xDD)));
    }
  };
};

constexpr CpuKernels kKernels = MakeKernels<Avx2>(Isa::kAvx2);

}  // namespace

const CpuKernels& Avx2Kernels() {
  return kKernels;
}

}  // namespace polysil::kernels
