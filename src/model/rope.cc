#include "model/rope.h"

#include <cmath>
#include <numbers>

namespace polysil {
namespace {

Status CheckPositive(std::string_view what, double value) {
  if (std::isfinite(value) && value > 0.0) return OkStatus();
  return InvalidArgument("rope {} is {}, not a positive number", what, value);
}

double ScaleLlama3(double frequency, const RopeParams& params) {
  const double wavelength = 2.0 * std::numbers::pi / frequency;
  if (wavelength < params.original_context / params.high_frequency_factor) return frequency;
  if (wavelength > params.original_context / params.low_frequency_factor) {
    return frequency / params.factor;
  }
  const double smooth = (params.original_context / wavelength - params.low_frequency_factor) /
                        (params.high_frequency_factor - params.low_frequency_factor);
  return (1.0 - smooth) * frequency / params.factor + smooth * frequency;
}

Status CheckParams(const RopeParams& params) {
  constexpr int32_t kDimsMax = 4096;  // before anything is sized by it
  if (params.dims < 2 || params.dims > kDimsMax || params.dims % 2 != 0) {
    return InvalidArgument("rope turns {} dimensions of a head, not an even number up to {}",
                           params.dims, kDimsMax);
  }
  RETURN_IF_ERROR(CheckPositive("base", params.base));
  RETURN_IF_ERROR(CheckPositive("magnitude", params.magnitude));
  switch (params.scaling) {
    case RopeScaling::kNone:
      return OkStatus();
    case RopeScaling::kLinear:
      return CheckPositive("scaling factor", params.factor);
    case RopeScaling::kLlama3:
      RETURN_IF_ERROR(CheckPositive("scaling factor", params.factor));
      RETURN_IF_ERROR(CheckPositive("low_freq_factor", params.low_frequency_factor));
      RETURN_IF_ERROR(CheckPositive("high_freq_factor", params.high_frequency_factor));
      RETURN_IF_ERROR(CheckPositive("original_max_position_embeddings", params.original_context));
      if (params.high_frequency_factor <= params.low_frequency_factor) {
        return InvalidArgument("rope high_freq_factor {} is not above low_freq_factor {}",
                               params.high_frequency_factor, params.low_frequency_factor);
      }
      return OkStatus();
    case RopeScaling::kFactors:
      if (static_cast<int32_t>(params.factors.size()) != params.dims / 2) {
        return InvalidArgument("rope has {} frequency factors for {} pairs", params.factors.size(),
                               params.dims / 2);
      }
      for (const float factor : params.factors) {
        RETURN_IF_ERROR(CheckPositive("frequency factor", factor));
      }
      return OkStatus();
  }
  return OkStatus();
}

}  // namespace

StatusOr<RopeScaling> RopeScalingFromName(std::string_view name) {
  if (name == "default" || name == "none") return RopeScaling::kNone;
  if (name == "linear") return RopeScaling::kLinear;
  if (name == "llama3") return RopeScaling::kLlama3;
  if (name == "longrope" || name == "su") return RopeScaling::kFactors;  // "su": its first name
  return Unimplemented("rope scaling type \"{}\" is not supported", name);
}

StatusOr<RopeSpec> BuildRope(const RopeParams& params) {
  RETURN_IF_ERROR(CheckParams(params));
  RopeSpec rope;
  rope.pairing = params.pairing;
  rope.dims = params.dims;
  rope.magnitude = static_cast<float>(params.magnitude);
  for (int32_t pair = 0; pair < params.dims / 2; ++pair) {
    double frequency = std::pow(params.base, -2.0 * pair / params.dims);
    switch (params.scaling) {
      case RopeScaling::kNone:
        break;
      case RopeScaling::kLinear:
        frequency /= params.factor;
        break;
      case RopeScaling::kLlama3:
        frequency = ScaleLlama3(frequency, params);
        break;
      case RopeScaling::kFactors:
        frequency /= params.factors[pair];
        break;
    }
    rope.inv_freqs.push_back(static_cast<float>(frequency));
  }
  return rope;
}

double LongRopeMagnitude(double stretch, double original_context) {
  if (!(stretch > 1.0) || !(original_context > 1.0)) return 1.0;
  return std::sqrt(1.0 + std::log(stretch) / std::log(original_context));
}

}  // namespace polysil
