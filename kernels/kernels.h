// Kernels: the math of a decoder on raw pointers and sizes. Includes nothing of ours; knows no
// class, thread or allocation. kernels/reference is the oracle (scalar, obvious), kernels/cpu the
// fast path.
#pragma once

#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/peak_kernels.h"
#include "kernels/half.h"
#include "kernels/weight_type.h"
