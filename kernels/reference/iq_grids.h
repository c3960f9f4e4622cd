// Code books of the IQ types, as the ggml format fixes them, packed: entry i holds its values low
// bits first. IQ2_XS: 8 values of 2 bits that stand for 8, 25, 43. IQ3_S: 4 values of 3 bits, v
// stands for 2v + 1. Signs are stored apart from the grid.
#pragma once

#include <cstdint>

namespace polysil::kernels {

extern const uint16_t kIq2XsGrid[512];
extern const uint16_t kIq3SGrid[512];

}  // namespace polysil::kernels
