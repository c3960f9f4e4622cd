// Packing rows of weights into panels, and what panels take: see panel_layout.h. Plain code,
// shared by the instruction sets.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/panel_layout.h"
#include "kernels/weight_type.h"

namespace polysil::kernels {

// The format in which products keep a weight type; exact: with float activations.
PanelKind PanelKindOf(WeightType type, bool exact);

struct PanelPacker {  // as in PanelFormat
  int64_t (*bytes)(int64_t cols);
  void (*pack)(WeightType type, const std::byte* from, int64_t row_bytes, int32_t rows,
               int64_t cols, std::byte* panel);
};
// lanes: 8 or 16.
const PanelPacker& PackerFor(PanelKind kind, int32_t lanes);

}  // namespace polysil::kernels
