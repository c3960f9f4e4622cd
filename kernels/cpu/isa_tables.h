// The tables that the instruction sets' files define. Only to be called where the machine runs the
// set; use KernelsFor and PeakKernelsFor.
#pragma once

#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/peak_kernels.h"

namespace polysil::kernels {

const CpuKernels& PortableKernels();
const CpuKernels& Avx2Kernels();
const CpuKernels& Avx512Kernels();

const PeakKernels& PortablePeaks();
const PeakKernels& Avx2Peaks();
const PeakKernels& Avx512Peaks();

}  // namespace polysil::kernels
