// The CPU's fast path: one table of kernels per instruction set, chosen at run time.
#pragma once

#include <cstddef>
#include <cstdint>

namespace polysil::kernels {

enum class Isa { kPortable, kAvx2, kAvx512 };

// The widest instruction set that this machine runs.
Isa BestIsa();

}  // namespace polysil::kernels
