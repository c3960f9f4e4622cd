// The table of kernels of one instruction set, made of the templates. Included by the file of that
// set alone; internal linkage, as in lanes.h.
#pragma once

#include "kernels/cpu/attention_int8_kernels.h"
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/panel_pack.h"
#include "kernels/cpu/panel_products.h"
#include "kernels/cpu/quantise_kernels.h"
#include "kernels/cpu/row_kernels.h"

namespace polysil::kernels {
namespace {

template <typename Isa, typename Product>
PanelFormat MakeFormat(PanelKind kind, ActivationType activation) {
  const PanelPacker& packer = PackerFor(kind, Isa::kLanes);
  return {activation, packer.bytes, packer.pack, MultiplyPanel<Product>};
}

template <typename Isa, template <typename> typename Format>
PanelFormat IntFormat(PanelKind kind) {
  return MakeFormat<Isa, IntProduct<Isa, Format<Isa>>>(kind, Format<Isa>::kActivation);
}
template <typename Isa, template <typename> typename Format>
PanelFormat FloatFormat(PanelKind kind) {
  return MakeFormat<Isa, FloatProduct<Isa, Format<Isa>>>(kind, ActivationType::kFloat);
}

template <typename Isa>
const PanelFormat& FormatFor(WeightType type, bool exact) {
  static const PanelFormat formats[kPanelKinds] = {
      FloatFormat<Isa, F32Format>(PanelKind::kF32),
      FloatFormat<Isa, F16Format>(PanelKind::kF16),
      FloatFormat<Isa, Bf16Format>(PanelKind::kBf16),
      IntFormat<Isa, Q8_0Format>(PanelKind::kQ8_0),
      IntFormat<Isa, Q4_0Format>(PanelKind::kQ4_0),
      IntFormat<Isa, Q4_1Format>(PanelKind::kQ4_1),
      IntFormat<Isa, Q5_0Format>(PanelKind::kQ5_0),
      IntFormat<Isa, Q5_1Format>(PanelKind::kQ5_1),
      IntFormat<Isa, Q2_KFormat>(PanelKind::kQ2_K),
      IntFormat<Isa, Q3_KFormat>(PanelKind::kQ3_K),
      IntFormat<Isa, Q4_KFormat>(PanelKind::kQ4_K),
      IntFormat<Isa, Q5_KFormat>(PanelKind::kQ5_K),
      IntFormat<Isa, Q6_KFormat>(PanelKind::kQ6_K),
      IntFormat<Isa, Iq4Format>(PanelKind::kIq4),
      IntFormat<Isa, Iq3SFormat>(PanelKind::kIq3S),
      IntFormat<Isa, Iq2XsFormat>(PanelKind::kIq2Xs),
      IntFormat<Isa, Mxfp4Format>(PanelKind::kMxfp4),
  };
  return formats[static_cast<int>(PanelKindOf(type, exact))];
}

template <typename Isa>
constexpr CpuKernels MakeKernels(kernels::Isa isa) {
  return {
      .isa = isa,
      .panel_rows = Isa::kLanes,
      .format = FormatFor<Isa>,
      .quantise_int8 = QuantiseInt8,
      .quantise_int16 = QuantiseInt16,
      .rms_norm = RmsNormRow,
      .gated_silu = GatedSilu,
      .gated_gelu_tanh = GatedGeluTanh,
      .softcap = SoftCapRow,
      .add = AddRow,
      .scale = ScaleRow,
      .rope_halves = RopeHalves,
      .rope_adjacent = RopeAdjacent,
      .floats_to_halves = FloatsToHalves,
      .quantise_kv = QuantiseKv,
      .attend_chunk = AttendChunk,
      .merge_partials = MergePartials,
  };
}

}  // namespace
}  // namespace polysil::kernels
