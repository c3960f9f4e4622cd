// Lanes: several floats worked on together in as many of the machine's registers as they need. The
// arithmetic is the same whatever the registers, operation by operation, so results have the same
// bits on every instruction set: a multiplication is joined to an addition only where it says so
// (MultiplyAdd; CMake sets -ffp-contract=off).
//
// Everything here has internal linkage on purpose: each instruction set's file compiles a copy with
// its own flags, and the linker must never give one file's copy to another.
#pragma once

#if defined(__F16C__)
#include <immintrin.h>
#endif

#include <cstdint>
#include <cstring>

#include "kernels/half.h"

namespace polysil::kernels {
namespace {

// Floats in one register of the file being compiled.
#if defined(POLYSIL_EMULATED_AVX512) || defined(__AVX512F__)
constexpr int kRegisterFloats = 16;
#elif defined(__AVX2__)
constexpr int kRegisterFloats = 8;
#else
constexpr int kRegisterFloats = 4;
#endif

typedef float FloatRegister __attribute__((vector_size(kRegisterFloats * 4)));
typedef int32_t IntRegister __attribute__((vector_size(kRegisterFloats * 4)));
typedef float UnalignedRegister
    __attribute__((vector_size(kRegisterFloats * 4), aligned(4), may_alias));

[[gnu::always_inline]] inline FloatRegister All(float value) {
  return value - FloatRegister{};
}

// a * b + c, rounded once.
[[gnu::always_inline]] inline FloatRegister MultiplyAdd(FloatRegister a, FloatRegister b,
                                                        FloatRegister c) {
#if defined(__AVX512F__)
  return _mm512_fmadd_ps(a, b, c);
#elif defined(__FMA__)
  return _mm256_fmadd_ps(a, b, c);
#else
  for (int i = 0; i < kRegisterFloats; ++i) c[i] = __builtin_fmaf(a[i], b[i], c[i]);
  return c;
#endif
}

// kCount floats, a multiple of a register's.
template <int kCount>
struct Lanes {
  static constexpr int kParts = kCount / kRegisterFloats;
  FloatRegister part[kParts];

  [[gnu::always_inline]] static Lanes Load(const float* from) {
    Lanes lanes;
    for (int i = 0; i < kParts; ++i) {
      lanes.part[i] = *reinterpret_cast<const UnalignedRegister*>(from + i * kRegisterFloats);
    }
    return lanes;
  }
  [[gnu::always_inline]] static Lanes Broadcast(float value) {
    Lanes lanes;
    for (int i = 0; i < kParts; ++i) lanes.part[i] = All(value);
    return lanes;
  }
  [[gnu::always_inline]] void Store(float* to) const {
    for (int i = 0; i < kParts; ++i) {
      *reinterpret_cast<UnalignedRegister*>(to + i * kRegisterFloats) = part[i];
    }
  }
};

using Sixteen = Lanes<16>;

template <int kCount>
[[gnu::always_inline]] inline Lanes<kCount> operator+(Lanes<kCount> a, const Lanes<kCount>& b) {
  for (int i = 0; i < a.kParts; ++i) a.part[i] += b.part[i];
  return a;
}
template <int kCount>
[[gnu::always_inline]] inline Lanes<kCount> operator-(Lanes<kCount> a, const Lanes<kCount>& b) {
  for (int i = 0; i < a.kParts; ++i) a.part[i] -= b.part[i];
  return a;
}
template <int kCount>
[[gnu::always_inline]] inline Lanes<kCount> operator*(Lanes<kCount> a, const Lanes<kCount>& b) {
  for (int i = 0; i < a.kParts; ++i) a.part[i] *= b.part[i];
  return a;
}
template <int kCount>
[[gnu::always_inline]] inline Lanes<kCount> operator/(Lanes<kCount> a, const Lanes<kCount>& b) {
  for (int i = 0; i < a.kParts; ++i) a.part[i] /= b.part[i];
  return a;
}
template <int kCount>
[[gnu::always_inline]] inline Lanes<kCount> MultiplyAdd(const Lanes<kCount>& a,
                                                        const Lanes<kCount>& b, Lanes<kCount> c) {
  for (int i = 0; i < c.kParts; ++i) c.part[i] = MultiplyAdd(a.part[i], b.part[i], c.part[i]);
  return c;
}
// a where it is the larger one, else b; so b where one of them is no number.
template <int kCount>
[[gnu::always_inline]] inline Lanes<kCount> Max(Lanes<kCount> a, const Lanes<kCount>& b) {
  for (int i = 0; i < a.kParts; ++i) a.part[i] = a.part[i] > b.part[i] ? a.part[i] : b.part[i];
  return a;
}
template <int kCount>
[[gnu::always_inline]] inline Lanes<kCount> Min(Lanes<kCount> a, const Lanes<kCount>& b) {
  for (int i = 0; i < a.kParts; ++i) a.part[i] = a.part[i] < b.part[i] ? a.part[i] : b.part[i];
  return a;
}
template <int kCount>
[[gnu::always_inline]] inline Lanes<kCount> Abs(Lanes<kCount> a) {
  for (int i = 0; i < a.kParts; ++i) {
    a.part[i] =
        reinterpret_cast<FloatRegister>(reinterpret_cast<IntRegister>(a.part[i]) & 0x7FFFFFFF);
  }
  return a;
}
// The magnitude of a with the sign of b.
template <int kCount>
[[gnu::always_inline]] inline Lanes<kCount> CopySign(Lanes<kCount> a, const Lanes<kCount>& b) {
  for (int i = 0; i < a.kParts; ++i) {
    const IntRegister sign = reinterpret_cast<IntRegister>(b.part[i]) & INT32_MIN;
    a.part[i] = reinterpret_cast<FloatRegister>(
        (reinterpret_cast<IntRegister>(a.part[i]) & 0x7FFFFFFF) | sign);
  }
  return a;
}

// e^x within 2 ulp; 0 below -87.3, at most e^88. No number stays no number.
template <int kCount>
[[gnu::always_inline]] inline Lanes<kCount> Exp(const Lanes<kCount>& x) {
  // x = n ln 2 + r with n whole and |r| <= ln 2 / 2; ln 2 in two parts so that n * kLn2High is
  // exact.
  constexpr float kLog2E = 1.44269504F;
  constexpr float kLn2High = 0.693359375F;
  constexpr float kLn2Low = -2.12194440e-4F;
  constexpr float kRound = 12582912.0F;  // 1.5 * 2^23: adding it rounds to a whole number
  Lanes<kCount> result;
  for (int i = 0; i < result.kParts; ++i) {
    const FloatRegister in = x.part[i];
    const FloatRegister top = in > 88.0F ? 88.0F - FloatRegister{} : in;
    const FloatRegister bounded = top < -87.3F ? -87.3F - FloatRegister{} : top;
    const FloatRegister shifted = MultiplyAdd(bounded, All(kLog2E), All(kRound));
    const FloatRegister n = shifted - kRound;
    FloatRegister r = MultiplyAdd(n, All(-kLn2High), bounded);
    r = MultiplyAdd(n, All(-kLn2Low), r);
    FloatRegister p = MultiplyAdd(r, All(1.9875691500e-4F), All(1.3981999507e-3F));
    p = MultiplyAdd(p, r, All(8.3334519073e-3F));
    p = MultiplyAdd(p, r, All(4.1665795894e-2F));
    p = MultiplyAdd(p, r, All(1.6666665459e-1F));
    p = MultiplyAdd(p, r, All(5.0000001201e-1F));
    p = MultiplyAdd(p, r * r, r) + 1.0F;
    // The low bits of `shifted` are n; add it to the exponent.
    const IntRegister exponent = reinterpret_cast<IntRegister>(shifted) << 23;
    const FloatRegister scaled =
        reinterpret_cast<FloatRegister>(reinterpret_cast<IntRegister>(p) + exponent);
    const FloatRegister kept = in < -87.3F ? FloatRegister{} : scaled;
    result.part[i] = in == in ? kept : in;
  }
  return result;
}

template <int kCount>
[[gnu::always_inline]] inline Lanes<kCount> Tanh(const Lanes<kCount>& x) {
  const Lanes<kCount> one = Lanes<kCount>::Broadcast(1.0F);
  const Lanes<kCount> e = Exp(Lanes<kCount>::Broadcast(-2.0F) * Abs(x));
  return CopySign((one - e) / (one + e), x);
}

template <int kCount>
[[gnu::always_inline]] inline Lanes<kCount> Sigmoid(const Lanes<kCount>& x) {
  const Lanes<kCount> one = Lanes<kCount>::Broadcast(1.0F);
  return one / (one + Exp(Lanes<kCount>::Broadcast(0.0F) - x));
}

typedef float FourFloats __attribute__((vector_size(16), aligned(4), may_alias));

// Lanes [4 * kQuarter, 4 * kQuarter + 4).
template <int kQuarter>
[[gnu::always_inline]] inline FourFloats Quarter(const Sixteen& x) {
  constexpr int kFrom = 4 * kQuarter % kRegisterFloats;
  const FloatRegister part = x.part[4 * kQuarter / kRegisterFloats];
  return __builtin_shufflevector(part, part, kFrom, kFrom + 1, kFrom + 2, kFrom + 3);
}

// Lanes i, i + 4, i + 8, i + 12 added as (i + (i + 8)) + ((i + 4) + (i + 12)).
[[gnu::always_inline]] inline FourFloats FoldToFour(const Sixteen& x) {
  return (Quarter<0>(x) + Quarter<2>(x)) + (Quarter<1>(x) + Quarter<3>(x));
}

// The sum of all lanes: those of FoldToFour as (0 + 2) + (1 + 3).
[[gnu::always_inline]] inline float Sum(const Sixteen& x) {
  const FourFloats four = FoldToFour(x);
  return (four[0] + four[2]) + (four[1] + four[3]);
}

// 16-bit floats.
template <int kCount>
[[gnu::always_inline]] inline Lanes<kCount> LoadHalves(const uint16_t* from) {
#if defined(__AVX512F__)
  Lanes<kCount> lanes;
  for (int i = 0; i < lanes.kParts; ++i) {
    lanes.part[i] = _mm512_cvtph_ps(
        _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + i * kRegisterFloats)));
  }
  return lanes;
#elif defined(__F16C__)
  Lanes<kCount> lanes;
  for (int i = 0; i < lanes.kParts; ++i) {
    lanes.part[i] = _mm256_cvtph_ps(
        _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i * kRegisterFloats)));
  }
  return lanes;
#else
  float values[kCount];
  for (int i = 0; i < kCount; ++i) values[i] = HalfToFloat(from[i]);
  return Lanes<kCount>::Load(values);
#endif
}

template <int kCount>
[[gnu::always_inline]] inline Lanes<kCount> LoadBfloat16s(const uint16_t* from) {
  typedef uint16_t Halves __attribute__((vector_size(kRegisterFloats * 2), aligned(2), may_alias));
  Lanes<kCount> lanes;
  for (int i = 0; i < lanes.kParts; ++i) {
    const auto* part = reinterpret_cast<const Halves*>(from + i * kRegisterFloats);
#if defined(__AVX512F__)
    const auto wide =
        reinterpret_cast<IntRegister>(_mm512_cvtepu16_epi32(reinterpret_cast<__m256i>(*part)));
#elif defined(__AVX2__)
    const auto wide =
        reinterpret_cast<IntRegister>(_mm256_cvtepu16_epi32(reinterpret_cast<__m128i>(*part)));
#else
    const IntRegister wide = __builtin_convertvector(*part, IntRegister);
#endif
    lanes.part[i] = reinterpret_cast<FloatRegister>(wide << 16);
  }
  return lanes;
}

template <int kCount>
[[gnu::always_inline]] inline void StoreHalves(const Lanes<kCount>& lanes, uint16_t* to) {
#if defined(__AVX512F__)
  for (int i = 0; i < lanes.kParts; ++i) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + i * kRegisterFloats),
                        _mm512_cvtps_ph(lanes.part[i], _MM_FROUND_TO_NEAREST_INT));
  }
#elif defined(__F16C__)
  for (int i = 0; i < lanes.kParts; ++i) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i * kRegisterFloats),
                     _mm256_cvtps_ph(lanes.part[i], _MM_FROUND_TO_NEAREST_INT));
  }
#else
  float values[kCount];
  lanes.Store(values);
  for (int i = 0; i < kCount; ++i) to[i] = FloatToHalf(values[i]);
#endif
}

}  // namespace
}  // namespace polysil::kernels
