// AVX2: compiled with -mavx2 -mfma -mf16c.
#include <immintrin.h>

#include "kernels/cpu/isa_tables.h"
#include "kernels/cpu/kernel_table.h"

namespace polysil::kernels {
namespace {

// Two registers worked on as one: each broadcast of x serves 16 rows of weights.
struct Avx2 {
  static constexpr int kLanes = 16;
  static constexpr int kParts = 2;
  static constexpr int kFloatRows = 6;
  struct Pair {
    __m256i part[2];
  };
  using Bytes = Pair;
  using Ints = Pair;
  struct WideBytes {  // one register's as int16: lanes 0, 1, 4, 5 and lanes 2, 3, 6, 7
    __m256i low;
    __m256i high;
  };

  // Both registers of `a` (and `b`) through `apply`.
  template <typename Apply>
  [[gnu::always_inline]] static Pair Each(const Pair& a, const Apply& apply) {
    return {{apply(a.part[0]), apply(a.part[1])}};
  }
  template <typename Apply>
  [[gnu::always_inline]] static Pair Each(const Pair& a, const Pair& b, const Apply& apply) {
    return {{apply(a.part[0], b.part[0]), apply(a.part[1], b.part[1])}};
  }

  static Bytes Load(const uint8_t* from) {
    const auto* registers = reinterpret_cast<const __m256i*>(from);
    return {{_mm256_loadu_si256(registers), _mm256_loadu_si256(registers + 1)}};
  }
  static Bytes And(Bytes a, int mask) {
    const __m256i masks = _mm256_set1_epi8(static_cast<char>(mask));
    return Each(a, [masks](__m256i part) { return _mm256_and_si256(part, masks); });
  }
  static Bytes Or(Bytes a, Bytes b) { return Each(a, b, _mm256_or_si256); }
  static Ints ShiftLeft(Ints a, int bits) {
    return Each(a, [bits](__m256i part) { return _mm256_slli_epi32(part, bits); });
  }
  static Ints ShiftRight(Ints a, int bits) {
    return Each(a, [bits](__m256i part) { return _mm256_srli_epi32(part, bits); });
  }
  static Ints AddInts(Ints a, Ints b) { return Each(a, b, _mm256_add_epi32); }
  static Ints SubtractShifted(Ints a, int32_t b, int bits) {
    const __m256i shifted = _mm256_slli_epi32(_mm256_set1_epi32(b), bits);
    return Each(a, [shifted](__m256i part) { return _mm256_sub_epi32(part, shifted); });
  }
  static Bytes LookUp(const uint8_t* table, Bytes indices) {
    const __m256i book =
        _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(table)));
    return Each(indices, [book](__m256i part) { return _mm256_shuffle_epi8(book, part); });
  }
  static Lanes<16> ToFloats(Ints a) {
    return {{_mm256_cvtepi32_ps(a.part[0]), _mm256_cvtepi32_ps(a.part[1])}};
  }
  static Lanes<16> LoadUnsigned(const uint8_t* from) {
    const auto* eights = reinterpret_cast<const int64_t*>(from);
    return ToFloats({{_mm256_cvtepu8_epi32(_mm_loadu_si64(eights)),
                      _mm256_cvtepu8_epi32(_mm_loadu_si64(eights + 1))}});
  }
  static Lanes<16> LoadSigned(const uint8_t* from) {
    const auto* eights = reinterpret_cast<const int64_t*>(from);
    return ToFloats({{_mm256_cvtepi8_epi32(_mm_loadu_si64(eights)),
                      _mm256_cvtepi8_epi32(_mm_loadu_si64(eights + 1))}});
  }
  static WideBytes Widen(const Bytes& a, int part) {
    const __m256i zero = _mm256_setzero_si256();
    return {_mm256_unpacklo_epi8(a.part[part], zero), _mm256_unpackhi_epi8(a.part[part], zero)};
  }

  // Byte `byte` of each lane's word.
  static Ints Byte(const Bytes& word, int byte) {
    const __m128i shift = _mm_cvtsi32_si128(8 * byte);
    return Each(word, [shift](__m256i part) {
      return _mm256_and_si256(_mm256_srl_epi32(part, shift), _mm256_set1_epi32(0xFF));
    });
  }

  // Sums of kWords products of 4 unsigned bytes below kValueMax with 4 signed ones. A pair of
  // products is at most 2 * kValueMax * 128, and kRun pairs fit 16 bits.
  template <int kValueMax, int kWords>
  struct Int8Sum {
    static constexpr int kFit = 32767 / (2 * kValueMax * 128);
    static constexpr int kRun = kFit >= kWords ? kWords : kFit >= 4 ? 4 : kFit >= 2 ? 2 : 1;
    static_assert(kFit >= 1);
    Pair pairs;
    Pair total;

    void Add(int i, const Bytes& word, const int8_t* x) {
      int32_t four;
      std::memcpy(&four, x, sizeof(four));
      const __m256i values = _mm256_set1_epi32(four);
      const Pair products =
          Each(word, [values](__m256i part) { return _mm256_maddubs_epi16(part, values); });
      pairs = i % kRun == 0 ? products : Each(pairs, products, _mm256_add_epi16);
      // Added now: the compiler would keep all products, and has no registers for them.
      asm volatile("" : "+x"(pairs.part[0]), "+x"(pairs.part[1]));
      if (i % kRun != kRun - 1) return;
      const __m256i ones = _mm256_set1_epi16(1);
      const Pair sums = Each(pairs, [ones](__m256i part) { return _mm256_madd_epi16(part, ones); });
      total = i < kRun ? sums : AddInts(total, sums);
    }
    Ints Total() const { return total; }
  };

  // Sums of products of 4 bytes with 4 values of 16 bits, of one register.
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
    void StoreTotal(int part, Ints* sums) const {
      const __m256 a = _mm256_castsi256_ps(low);
      const __m256 b = _mm256_castsi256_ps(high);
      sums->part[part] = _mm256_add_epi32(_mm256_castps_si256(_mm256_shuffle_ps(a, b, 0x88)),
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
