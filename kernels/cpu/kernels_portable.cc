// No instruction set beyond the compiler's default: the fallback, and the plainest reading of what
// the others compute.
#include "kernels/cpu/isa_tables.h"
#include "kernels/cpu/kernel_table.h"

namespace polysil::kernels {
namespace {

struct Portable {
  static constexpr int kLanes = 8;
  static constexpr int kParts = 1;
  static constexpr int kFloatRows = 4;
  struct Bytes {
    uint8_t byte[4 * kLanes];
  };
  struct Ints {
    int32_t lane[kLanes];
  };
  using WideBytes = Bytes;

  static Bytes Load(const uint8_t* from) {
    Bytes bytes;
    std::memcpy(&bytes, from, sizeof(bytes));
    return bytes;
  }
  [[gnu::noinline]] static Bytes And(Bytes a, int mask) {
    for (uint8_t& byte : a.byte) byte = static_cast<uint8_t>(byte & mask);
    return a;
  }
  [[gnu::noinline]] static Bytes Or(Bytes a, const Bytes& b) {
    for (int i = 0; i < 4 * kLanes; ++i) a.byte[i] = static_cast<uint8_t>(a.byte[i] | b.byte[i]);
    return a;
  }
  // Bytes are shifted one by one: a mask takes what other sets carry over from the byte beside.
  [[gnu::noinline]] static Bytes ShiftLeft(Bytes a, int bits) {
    for (uint8_t& byte : a.byte) byte = static_cast<uint8_t>(byte << bits);
    return a;
  }
  [[gnu::noinline]] static Bytes ShiftRight(Bytes a, int bits) {
    for (uint8_t& byte : a.byte) byte = static_cast<uint8_t>(byte >> bits);
    return a;
  }
  static Ints SubtractShifted(Ints a, int32_t b, int bits) {
    for (int32_t& lane : a.lane) lane -= b * (1 << bits);
    return a;
  }
  [[gnu::noinline]] static Bytes LookUp(const uint8_t* table, Bytes indices) {
    for (uint8_t& byte : indices.byte) byte = table[byte];
    return indices;
  }
  [[gnu::noinline]] static Lanes<kLanes> ToFloats(const Ints& a) {
    float values[kLanes];
    for (int i = 0; i < kLanes; ++i) values[i] = static_cast<float>(a.lane[i]);
    return Lanes<kLanes>::Load(values);
  }
  [[gnu::noinline]] static Lanes<kLanes> LoadUnsigned(const uint8_t* from) {
    float values[kLanes];
    for (int i = 0; i < kLanes; ++i) values[i] = static_cast<float>(from[i]);
    return Lanes<kLanes>::Load(values);
  }
  [[gnu::noinline]] static Lanes<kLanes> LoadSigned(const uint8_t* from) {
    float values[kLanes];
    for (int i = 0; i < kLanes; ++i) values[i] = static_cast<float>(static_cast<int8_t>(from[i]));
    return Lanes<kLanes>::Load(values);
  }
  static WideBytes Widen(const Bytes& a, int) { return a; }

  // Byte `byte` of each lane's word.
  static Ints Byte(const Bytes& word, int byte) {
    Ints ints;
    for (int i = 0; i < kLanes; ++i) ints.lane[i] = word.byte[4 * i + byte];
    return ints;
  }

  // total += products of 4 bytes per lane with 4 values. Not inlined: the templates unroll the
  // loops around it, which here would only make the compiler slow.
  template <typename Value>
  [[gnu::noinline]] static void AddProducts(const Bytes& word, const Value* x, Ints* total) {
    for (int i = 0; i < kLanes; ++i) {
      for (int t = 0; t < 4; ++t) total->lane[i] += word.byte[4 * i + t] * x[t];
    }
  }
  struct Sums {
    Ints total = {};

    template <typename Value>
    void Add(int, const Bytes& word, const Value* x) {
      AddProducts(word, x, &total);
    }
    const Ints& Total() const { return total; }
    void StoreTotal(int, Ints* sums) const { *sums = total; }
  };
  template <int kValueMax, int kWords>
  using Int8Sum = Sums;
  using Int16Sum = Sums;
};

constexpr CpuKernels kKernels = MakeKernels<Portable>(Isa::kPortable);

}  // namespace

const CpuKernels& PortableKernels() {
  return kKernels;
}

}  // namespace polysil::kernels
