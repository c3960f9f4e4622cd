#include "kernels/reference/reference.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace polysil::kernels::reference {

void MatMul(const float* weight, const float* x, int64_t weight_rows, int64_t cols, int64_t rows,
            float* out) {
  for (int64_t t = 0; t < rows; ++t) {
    for (int64_t r = 0; r < weight_rows; ++r) {
      double sum = 0;
      for (int64_t c = 0; c < cols; ++c) {
        sum += static_cast<double>(weight[r * cols + c]) * static_cast<double>(x[t * cols + c]);
      }
      out[t * weight_rows + r] = static_cast<float>(sum);
    }
  }
}

void RmsNorm(const float* x, const float* weight, float weight_offset, float eps, int64_t rows,
             int64_t cols, float* out) {
  for (int64_t r = 0; r < rows; ++r) {
    double squares = 0;
    for (int64_t c = 0; c < cols; ++c) {
      squares += static_cast<double>(x[r * cols + c]) * static_cast<double>(x[r * cols + c]);
    }
    const double factor = 1.0 / std::sqrt(squares / static_cast<double>(cols) + eps);
    for (int64_t c = 0; c < cols; ++c) {
      const double gain = static_cast<double>(weight[c]) + weight_offset;
      out[r * cols + c] = static_cast<float>(x[r * cols + c] * factor * gain);
    }
  }
}

void Rope(float* x, const int32_t* positions, const float* inv_freqs, int64_t rows,
          const RopeShape& shape) {
  const int32_t pairs = shape.dims / 2;
  for (int64_t r = 0; r < rows; ++r) {
    for (int32_t h = 0; h < shape.heads; ++h) {
      float* head = x + (r * shape.heads + h) * shape.head_size;
      for (int32_t i = 0; i < pairs; ++i) {
        const double angle = static_cast<double>(positions[r]) * inv_freqs[i];
        const double cosine = std::cos(angle) * shape.magnitude;
        const double sine = std::sin(angle) * shape.magnitude;
        float& first = head[shape.adjacent ? 2 * i : i];
        float& second = head[shape.adjacent ? 2 * i + 1 : i + pairs];
        const double a = first;
        const double b = second;
        first = static_cast<float>(a * cosine - b * sine);
        second = static_cast<float>(a * sine + b * cosine);
      }
    }
  }
}

void Attention(const float* q, const float* keys, const float* values, int32_t position,
               const AttentionShape& shape, float* out) {
  const int32_t begin = shape.window > 0 ? std::max(0, position - shape.window + 1) : 0;
  const int64_t kv_stride = int64_t{shape.kv_heads} * shape.head_size;
  std::vector<double> weights(static_cast<size_t>(position - begin + 1));
  std::vector<double> sums(static_cast<size_t>(shape.head_size));
  for (int32_t h = 0; h < shape.q_heads; ++h) {
    const int64_t kv_offset = int64_t{h / (shape.q_heads / shape.kv_heads)} * shape.head_size;
    double largest = -INFINITY;
    for (int32_t p = begin; p <= position; ++p) {
      double score = 0;
      for (int32_t d = 0; d < shape.head_size; ++d) {
        score +=
            static_cast<double>(q[h * shape.head_size + d]) * keys[p * kv_stride + kv_offset + d];
      }
      score *= shape.scale;
      if (shape.softcap > 0) score = shape.softcap * std::tanh(score / shape.softcap);
      weights[static_cast<size_t>(p - begin)] = score;
      largest = std::max(largest, score);
    }
    double total = 0;
    std::fill(sums.begin(), sums.end(), 0.0);
    for (int32_t p = begin; p <= position; ++p) {
      const double weight = std::exp(weights[static_cast<size_t>(p - begin)] - largest);
      total += weight;
      for (int32_t d = 0; d < shape.head_size; ++d) {
        sums[static_cast<size_t>(d)] += weight * values[p * kv_stride + kv_offset + d];
      }
    }
    for (int32_t d = 0; d < shape.head_size; ++d) {
      out[h * shape.head_size + d] = static_cast<float>(sums[static_cast<size_t>(d)] / total);
    }
  }
}

void GatedSilu(const float* gate, const float* up, int64_t count, float* out) {
  for (int64_t i = 0; i < count; ++i) {
    const double g = gate[i];
    out[i] = static_cast<float>(g / (1.0 + std::exp(-g)) * up[i]);
  }
}

void GatedGeluTanh(const float* gate, const float* up, int64_t count, float* out) {
  constexpr double kSqrt2OverPi = 0.79788456080286535588;
  for (int64_t i = 0; i < count; ++i) {
    const double g = gate[i];
    const double inner = kSqrt2OverPi * (g + 0.044715 * g * g * g);
    out[i] = static_cast<float>(0.5 * g * (1.0 + std::tanh(inner)) * up[i]);
  }
}

void SoftCap(float* x, float cap, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    x[i] = static_cast<float>(cap * std::tanh(static_cast<double>(x[i]) / cap));
  }
}

}  // namespace polysil::kernels::reference
