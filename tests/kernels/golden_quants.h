// Reads tests/data/kernels/quants.jsonl: raw blocks of every weight type with their exact values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace polysil::kernels {

struct GoldenQuants {
  std::string type;
  int32_t values_per_block = 0;
  int32_t bytes_per_block = 0;
  std::vector<std::byte> blocks;
  std::vector<float> values;
};

// Every line of the file; empty when it cannot be read.
std::vector<GoldenQuants> ReadGoldenQuants(const std::string& path);

}  // namespace polysil::kernels
