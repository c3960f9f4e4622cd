// OfflineReport: the results of an OfflineBench as a table for people, as JSON, and as a roofline
// picture. Pure functions of values.
#pragma once

#include <string>
#include <vector>

#include "bench/offline_bench.h"
#include "device/cpu/cpu_bounds.h"

namespace polysil {

struct OfflineReport {
  std::string model;          // path
  std::string weight_types;   // "Q4_1+Q8_0"
  std::string device;         // "AMD EPYC, AVX2, 2 threads"
  std::string numeric_class;  // as the engine has it
  double step_bytes = 0.0;    // weights that a step reads
  double kv_token_bytes = 0.0;
  CpuBounds bounds;
  std::vector<OfflineResult> results;
};

std::string TableOf(const OfflineReport& report);
std::string JsonOf(const OfflineReport& report);
// Operations per byte against operations per second, both logarithmic: the roofs that the machine
// has, and a labelled point for each row. A whole SVG file.
std::string RooflineSvgOf(const OfflineReport& report);

}  // namespace polysil
