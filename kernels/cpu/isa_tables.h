// The tables that the instruction sets' files define. Only to be called where the machine runs the
// set; use KernelsFor.
#pragma once

#include "kernels/cpu/cpu_kernels.h"

namespace polysil::kernels {

const CpuKernels& PortableKernels();
const CpuKernels& Avx2Kernels();
const CpuKernels& Avx512Kernels();

}  // namespace polysil::kernels
