// Golden answers of the tiny models (tests/data/model and ../shared/golden/tiny), and a small
// harness that runs a Decoder on one sequence. For the tests of model and exec.
#pragma once

#include <gtest/gtest.h>

#include <boost/json/parse.hpp>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "device/cpu/cpu_device.h"
#include "model/checkpoint.h"
#include "model/decoder.h"

namespace polysil::golden {

struct Prompt {
  std::string id;
  std::vector<TokenId> prompt_ids;
  std::vector<TokenId> output_ids;
  std::vector<double> prompt_logprobs;  // first is 0: nothing precedes it
  std::vector<double> output_logprobs;
  std::vector<double> margins;
  std::vector<double> logits_last;
  std::vector<std::vector<double>> logits_all;            // "short" only
  std::vector<std::vector<double>> hidden_last_position;  // "short" only
};

inline std::string ReadFile(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

// The real model takes minutes under a sanitizer, and shows it nothing that the tiny ones do not.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

inline bool Exists(const std::string& path) {
  return std::filesystem::exists(path);
}

inline std::string SharedPath(const std::string& relative) {
  return std::string(POLYSIL_SHARED_DIR) + "/golden/" + relative;
}

template <typename T>
std::vector<T> Numbers(const boost::json::value& list) {
  std::vector<T> out;
  for (const boost::json::value& value : list.as_array()) {
    out.push_back(value.is_null() ? T{} : value.to_number<T>());
  }
  return out;
}

inline std::vector<std::vector<double>> Rows(const boost::json::value* list) {
  std::vector<std::vector<double>> out;
  if (list == nullptr || list->is_null()) return out;
  for (const boost::json::value& row : list->as_array()) out.push_back(Numbers<double>(row));
  return out;
}

inline std::vector<Prompt> ReadPrompts(const std::string& path) {
  std::vector<Prompt> prompts;
  const boost::json::value file = boost::json::parse(ReadFile(path));
  for (const boost::json::value& value : file.at("prompts").as_array()) {
    const boost::json::object& object = value.as_object();
    const auto* id = object.if_contains("id");
    prompts.push_back({
        .id = id != nullptr ? std::string(id->as_string().c_str()) : "",
        .prompt_ids = Numbers<TokenId>(object.at("prompt_ids")),
        .output_ids = Numbers<TokenId>(object.at("output_ids")),
        .prompt_logprobs = Numbers<double>(object.at("prompt_logprobs")),
        .output_logprobs = Numbers<double>(object.at("output_logprobs")),
        .margins = Numbers<double>(object.at("margins")),
        .logits_last = Numbers<double>(object.at("logits_last")),
        .logits_all = Rows(object.if_contains("logits_all")),
        .hidden_last_position = Rows(object.if_contains("hidden_last_position")),
    });
  }
  return prompts;
}

// One sequence on one decoder, with its own KV pool. Blocks are handed out backwards and with a
// gap, so that nothing can rely on their order.
class Harness final {
 public:
  Harness(std::unique_ptr<Device> device, const Checkpoint& checkpoint, int32_t layers,
          DType kv_dtype, int32_t tokens_max)
      : device_(std::move(device)), spec_(checkpoint.spec()) {
    ModelWeights weights = checkpoint.weights();
    spec_.layers.resize(layers);
    weights.layers.resize(layers);
    auto decoder = Decoder::Load(*device_, spec_, weights, {.tokens_max = tokens_max});
    EXPECT_TRUE(decoder.ok()) << decoder.status();
    decoder_ = *std::move(decoder);
    pool_.layout = {.layers = layers,
                    .kv_heads = spec_.kv_heads,
                    .head_size = spec_.head_size,
                    .dtype = kv_dtype};
    pool_.blocks = 512;
    auto memory = device_->Allocate(pool_.blocks * pool_.layout.block_bytes());
    EXPECT_TRUE(memory.ok()) << memory.status();
    memory_ = *std::move(memory);
    pool_.base = memory_->data();
    for (int32_t i = 0; i < 250; ++i) blocks_.push_back({pool_.blocks - 1 - 2 * i});
  }

  // Computes positions [begin, begin + tokens.size()).
  void Forward(std::span<const TokenId> tokens, int32_t begin) {
    std::vector<int32_t> positions(tokens.size());
    std::iota(positions.begin(), positions.end(), begin);
    const AttentionSequence sequence{.row_begin = 0,
                                     .rows = static_cast<int32_t>(tokens.size()),
                                     .position_begin = begin,
                                     .block_table = blocks_};
    decoder_->Forward(
        {.tokens = tokens, .positions = positions, .sequences = {&sequence, 1}, .pool = &pool_});
  }

  std::vector<float> Logits(int32_t row) {
    const std::span<const float> logits = decoder_->Logits({&row, 1});
    return {logits.begin(), logits.end()};
  }

  Decoder& decoder() { return *decoder_; }
  const ModelSpec& spec() const { return spec_; }

 private:
  std::unique_ptr<Device> device_;
  ModelSpec spec_;
  std::unique_ptr<Decoder> decoder_;
  std::unique_ptr<DeviceBuffer> memory_;
  KvPool pool_;
  std::vector<BlockId> blocks_;
};

inline std::unique_ptr<Device> CpuDevice(CpuActivations activations) {
  auto device = CreateCpuDevice({.threads = 2, .activations = activations});
  EXPECT_TRUE(device.ok()) << device.status();
  return *std::move(device);
}

inline std::vector<double> LogSoftmax(std::span<const float> logits) {
  double largest = -INFINITY;
  for (const float x : logits) largest = std::max<double>(largest, x);
  double sum = 0.0;
  for (const float x : logits) sum += std::exp(x - largest);
  std::vector<double> out;
  for (const float x : logits) out.push_back(x - largest - std::log(sum));
  return out;
}

inline int32_t ArgMax(std::span<const float> logits) {
  return static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

inline double MaxDifference(std::span<const float> got, std::span<const double> expected) {
  if (got.size() != expected.size()) return INFINITY;
  double worst = 0.0;
  for (size_t i = 0; i < got.size(); ++i) {
    const double difference = std::abs(got[i] - expected[i]);
    if (!(difference <= worst)) worst = std::isnan(difference) ? INFINITY : difference;
  }
  return worst;
}

}  // namespace polysil::golden
