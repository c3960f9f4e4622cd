// One weight matrix packed for one instruction set, and products with it, without a device.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/kernel_tables.h"
#include "kernels/random_data.h"

namespace polysil::kernels {

class ProductRig {
 public:
  ProductRig(const CpuKernels& kernels, WeightType type, bool exact,
             const std::vector<std::byte>& blocks, int64_t weight_rows, int64_t cols)
      : kernels_(kernels),
        format_(kernels.format(type, exact)),
        weight_rows_(weight_rows),
        cols_(cols),
        panel_bytes_(format_.panel_bytes(cols)) {
    const WeightBlock size = BlockOf(type);
    const int64_t row_bytes = cols / size.values * size.bytes;
    const int64_t panels = (weight_rows + kernels.panel_rows - 1) / kernels.panel_rows;
    panels_.resize(static_cast<size_t>(panels * panel_bytes_));
    for (int64_t p = 0; p < panels; ++p) {
      const int64_t row = p * kernels.panel_rows;
      format_.pack(type, blocks.data() + row * row_bytes, row_bytes, LanesAt(row), cols,
                   panels_.data() + p * panel_bytes_);
    }
  }

  ActivationType activation() const { return format_.activation; }

  // out [rows, weight_rows] = x [rows, cols] . weights.
  std::vector<float> Multiply(const std::vector<float>& x) const {
    const auto rows = static_cast<int64_t>(x.size()) / cols_;
    std::vector<float> out(static_cast<size_t>(rows * weight_rows_));
    MultiplyInto(x, nullptr, false, out);
    return out;
  }

  void MultiplyInto(const std::vector<float>& x, const float* bias, bool accumulate,
                    std::vector<float>& out) const {
    const auto rows = static_cast<int64_t>(x.size()) / cols_;
    const int64_t blocks = cols_ / kActivationBlock;
    std::vector<Int8Block> int8(static_cast<size_t>(rows * blocks));
    std::vector<ActivationOutlier> outliers(static_cast<size_t>(rows * RowOutliersMax(cols_)));
    std::vector<int32_t> counts(static_cast<size_t>(rows));
    std::vector<Int16Block> int16(static_cast<size_t>(rows * blocks));
    for (int64_t r = 0; r < rows && format_.activation != ActivationType::kFloat; ++r) {
      counts[r] = kernels_.quantise_int8(x.data() + r * cols_, cols_, int8.data() + r * blocks,
                                         outliers.data() + r * RowOutliersMax(cols_));
      kernels_.quantise_int16(x.data() + r * cols_, cols_, int16.data() + r * blocks);
    }
    const Activations activations = {.cols = cols_,
                                     .floats = x.data(),
                                     .int8_blocks = int8.data(),
                                     .outliers = outliers.data(),
                                     .outlier_counts = counts.data(),
                                     .int16_blocks = int16.data()};
    for (int64_t row = 0; row < weight_rows_; row += kernels_.panel_rows) {
      const PanelOutput output = {out.data() + row, weight_rows_, LanesAt(row),
                                  bias == nullptr ? nullptr : bias + row, accumulate};
      format_.multiply(panels_.data() + row / kernels_.panel_rows * panel_bytes_, activations, 0,
                       rows, output);
    }
  }

 private:
  int32_t LanesAt(int64_t row) const {
    return static_cast<int32_t>(std::min<int64_t>(kernels_.panel_rows, weight_rows_ - row));
  }

  const CpuKernels& kernels_;
  const PanelFormat& format_;
  int64_t weight_rows_;
  int64_t cols_;
  int64_t panel_bytes_;
  std::vector<std::byte> panels_;
};

}  // namespace polysil::kernels
