#include "kernels/cpu/cpu_kernels.h"

namespace polysil::kernels {

Isa BestIsa() {
  return Isa::kPortable;
}

}  // namespace polysil::kernels
