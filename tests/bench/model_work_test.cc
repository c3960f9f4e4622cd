#include "bench/model_work.h"

#include <gtest/gtest.h>

namespace polysil {
namespace {

// Two layers, one of them with a window of 4; 2 query heads on 1 KV head of 8; everything Q8_0 (34
// bytes for 32 values) but a float output matrix.
struct SmallModel {
  ModelSpec spec;
  ModelWeights weights;

  SmallModel() {
    spec.q_heads = 2;
    spec.kv_heads = 1;
    spec.head_size = 8;
    spec.layers = {{.window = 0}, {.window = 4}};
    const HostTensor matrix = {.dtype = DType::kQ8_0, .rows = 10, .cols = 32};
    LayerWeights layer;
    for (HostTensor* tensor : {&layer.q, &layer.k, &layer.v, &layer.attention_output, &layer.gate,
                               &layer.up, &layer.down}) {
      *tensor = matrix;
    }
    weights.layers = {layer, layer};
    weights.output = {.dtype = DType::kF16, .rows = 100, .cols = 32};
  }
};

constexpr KvLayout kHalves = {.head_size = 8, .dtype = DType::kF16};
constexpr KvLayout kFloats = {.head_size = 8, .dtype = DType::kF32};
constexpr KvLayout kIntegers = {.head_size = 8, .dtype = DType::kI8};
constexpr double kLayerWeights = 2 * 7 * 320;  // values of both layers

TEST(ModelWork, ADecodeReadsAllWeightsOnceAndEachStreamsKv) {
  const SmallModel model;
  const ModelWork work(model.spec, model.weights, false, kHalves);
  EXPECT_EQ(work.step_bytes(), kLayerWeights / 32 * 34 + 3200 * 2);
  EXPECT_EQ(work.kv_token_bytes(), 2 * 2 * 8 * 2);
  // A stream sees 10 tokens in one layer and 4 in the other, 32 bytes each.
  const Work three = work.Decode(3, 10);
  EXPECT_EQ(three.bytes, work.step_bytes() + 3 * 14 * 32);
  EXPECT_EQ(three.int8_operations, 3 * 2 * kLayerWeights);
  // Two heads of 8, a score and a sum, a multiplication and an addition: 64 for a token seen.
  EXPECT_EQ(three.float_operations, 3 * (2 * 3200 + 14 * 64));
}

TEST(ModelWork, APromptsTokensSeeWhatIsBeforeThemWithinTheWindow) {
  const SmallModel model;
  const ModelWork work(model.spec, model.weights, false, kHalves);
  for (const int depth : {0, 1, 3, 4, 9}) {
    for (const int tokens : {1, 2, 5, 8}) {
      double seen = 0;
      for (int p = depth; p < depth + tokens; ++p) seen += p + 1 + std::min(4, p + 1);
      const Work prompt = work.Prefill(tokens, depth);
      EXPECT_EQ(prompt.float_operations, 2 * 3200 + seen * 64) << tokens << " @ " << depth;
      EXPECT_EQ(prompt.int8_operations, tokens * 2 * kLayerWeights);
      EXPECT_EQ(prompt.bytes,
                work.step_bytes() + (depth + tokens + std::min(4, depth + tokens)) * 32);
    }
  }
}

TEST(ModelWork, FloatActivationsMakeAllOperationsFloat) {
  const SmallModel model;
  const Work work = ModelWork(model.spec, model.weights, true, kFloats).Decode(1, 1);
  EXPECT_EQ(work.int8_operations, 0);
  EXPECT_EQ(work.float_operations, 2 * kLayerWeights + 2 * 3200 + 2 * 64);
}

// A head's key (or value) is 8 bytes and a scale of 4; attention's products are of integers then.
TEST(ModelWork, KvOfIntegersIsReadWithItsScales) {
  const SmallModel model;
  const ModelWork work(model.spec, model.weights, false, kIntegers);
  EXPECT_EQ(work.kv_token_bytes(), 2 * 2 * 12);
  const Work decode = work.Decode(1, 3);
  EXPECT_EQ(decode.bytes, work.step_bytes() + 6 * 24);
  EXPECT_EQ(decode.int8_operations, 2 * kLayerWeights + 6 * 64);
  EXPECT_EQ(decode.float_operations, 2 * 3200);
}

TEST(ModelWork, TheLargerTimeIsTheBound) {
  CpuBounds bounds;
  bounds.read_all.Add(100.0);
  bounds.int8_operations.Add(1000.0);
  bounds.float_operations.Add(10.0);
  const WorkBound memory = BoundOf({.bytes = 500.0, .int8_operations = 4000.0}, bounds);
  EXPECT_TRUE(memory.by_memory);
  EXPECT_EQ(memory.seconds, 5.0);
  const WorkBound arithmetic =
      BoundOf({.bytes = 500.0, .int8_operations = 4000.0, .float_operations = 20.0}, bounds);
  EXPECT_FALSE(arithmetic.by_memory);
  EXPECT_EQ(arithmetic.seconds, 6.0);
}

TEST(ModelWork, WithoutKnownArithmeticMemoryIsTheBound) {
  CpuBounds bounds;
  bounds.read_all.Add(100.0);
  const WorkBound bound = BoundOf({.bytes = 100.0, .int8_operations = 1e9}, bounds);
  EXPECT_TRUE(bound.by_memory);
  EXPECT_EQ(bound.seconds, 1.0);
}

}  // namespace
}  // namespace polysil
