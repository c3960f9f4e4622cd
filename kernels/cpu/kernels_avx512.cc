// AVX-512 (F, BW, DQ, VL) with VNNI. Tests compile this file a second time with emulated
// instructions (POLYSIL_EMULATED_AVX512), so that it runs on any machine.
#if defined(POLYSIL_EMULATED_AVX512)
#define SIMDE_ENABLE_NATIVE_ALIASES
#include <simde/x86/avx512.h>
#else
#include <immintrin.h>
#endif

#include "kernels/cpu/isa_tables.h"
#include "kernels/cpu/kernel_table.h"

namespace polysil::kernels {
namespace {

struct Avx512 {
  static constexpr int kLanes = 16;
  static constexpr int kParts = 1;
  static constexpr int kFloatRows = 12;
  using Bytes = __m512i;
  using Ints = __m512i;
  struct WideBytes {  // as int16: lanes 0, 1 and lanes 2, 3 of every four
    __m512i low;
    __m512i high;
  };

  static Bytes Load(const uint8_t* from) { return _mm512_loadu_si512(from); }
  static Bytes And(Bytes a, int mask) {
    return _mm512_and_si512(a, _mm512_set1_epi8(static_cast<char>(mask)));
  }
  static Bytes Or(Bytes a, Bytes b) { return _mm512_or_si512(a, b); }
  static Ints ShiftLeft(Ints a, int bits) {
    return _mm512_slli_epi32(a, static_cast<unsigned>(bits));
  }
  static Ints ShiftRight(Ints a, int bits) {
    return _mm512_srli_epi32(a, static_cast<unsigned>(bits));
  }
  static Ints SubtractShifted(Ints a, int32_t b, int bits) {
    return _mm512_sub_epi32(a, ShiftLeft(_mm512_set1_epi32(b), bits));
  }
  static Bytes LookUp(const uint8_t* table, Bytes indices) {
    const __m128i book = _mm_loadu_si128(reinterpret_cast<const __m128i*>(table));
    return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(book), indices);
  }
  static Lanes<16> ToFloats(Ints a) { return {{_mm512_cvtepi32_ps(a)}}; }
  static Lanes<16> LoadUnsigned(const uint8_t* from) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
    return ToFloats(_mm512_cvtepu8_epi32(bytes));
  }
  static Lanes<16> LoadSigned(const uint8_t* from) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
    return ToFloats(_mm512_cvtepi8_epi32(bytes));
  }
  static WideBytes Widen(Bytes a, int) {
    const __m512i zero = _mm512_setzero_si512();
    return {_mm512_unpacklo_epi8(a, zero), _mm512_unpackhi_epi8(a, zero)};
  }

  // Byte `byte` of each lane's word.
  static Ints Byte(Bytes word, int byte) {
    return _mm512_and_si512(_mm512_srl_epi32(word, _mm_cvtsi32_si128(8 * byte)),
                            _mm512_set1_epi32(0xFF));
  }

  template <int kValueMax, int kWords>
  struct Int8Sum {
    __m512i total;

    void Add(int i, Bytes word, const int8_t* x) {
      int32_t four;
      std::memcpy(&four, x, sizeof(four));
      total = _mm512_dpbusd_epi32(i == 0 ? _mm512_setzero_si512() : total, word,
                                  _mm512_set1_epi32(four));
    }
    Ints Total() const { return total; }
  };

  struct Int16Sum {
    __m512i low;
    __m512i high;

    void Add(int i, const WideBytes& word, const int16_t* x) {
      int64_t four;
      std::memcpy(&four, x, sizeof(four));
      const __m512i values = _mm512_set1_epi64(four);
      low = _mm512_dpwssd_epi32(i == 0 ? _mm512_setzero_si512() : low, word.low, values);
      high = _mm512_dpwssd_epi32(i == 0 ? _mm512_setzero_si512() : high, word.high, values);
    }
    void StoreTotal(int, Ints* sums) const {
      const __m512 a = _mm512_castsi512_ps(low);
      const __m512 b = _mm512_castsi512_ps(high);
      *sums = _mm512_add_epi32(_mm512_castps_si512(_mm512_shuffle_ps(a, b, 0x88)),
                               _mm512_castps_si512(_mm512_shuffle_ps(a, b, 0xDD)));
    }
  };
};

constexpr CpuKernels kKernels = MakeKernels<Avx512>(Isa::kAvx512);

}  // namespace

#if defined(POLYSIL_EMULATED_AVX512)
const CpuKernels& EmulatedAvx512Kernels() {
  return kKernels;
}
#else
const CpuKernels& Avx512Kernels() {
  return kKernels;
}
#endif

}  // namespace polysil::kernels
