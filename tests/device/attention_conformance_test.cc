// StoreKv and Attention over a paged pool: right, and the same whatever the blocks, batches and
// threads.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "device/device_rig.h"
#include "kernels/reference/reference.h"

namespace polysil {
namespace {

using kernels::BitsOf;
using kernels::RandomFloats;

constexpr int32_t kLayers = 3;
constexpr int32_t kLayer = 1;

struct Shape {
  int32_t q_heads = 6;
  int32_t kv_heads = 2;
  int32_t head_size = 64;
  DType dtype = DType::kF16;
  float softcap = 0.0F;
  int32_t window = 0;
};

// Sequences of given lengths, with their q, k and v, in one pool whose blocks are dealt at random.
class PagedSequences {
 public:
  PagedSequences(Device& device, const Shape& shape, std::vector<int32_t> lengths,
                 int32_t tokens_per_block)
      : device_(device), shape_(shape), lengths_(std::move(lengths)) {
    pool_.layout = {.layers = kLayers,
                    .kv_heads = shape.kv_heads,
                    .head_size = shape.head_size,
                    .tokens_per_block = tokens_per_block,
                    .dtype = shape.dtype};
    std::vector<BlockId> deck;
    int32_t blocks = 0;
    for (const int32_t length : lengths_) blocks += BlocksFor(length);
    for (int32_t b = 0; b < blocks; ++b) deck.push_back({b});
    std::shuffle(deck.begin(), deck.end(), std::mt19937(5));
    uint32_t seed = 100;
    for (const int32_t length : lengths_) {
      tables_.emplace_back(deck.end() - BlocksFor(length), deck.end());
      deck.resize(deck.size() - static_cast<size_t>(BlocksFor(length)));
      q_.push_back(RandomFloats(int64_t{length} * shape.q_heads * shape.head_size, seed++));
      k_.push_back(RandomFloats(int64_t{length} * shape.kv_heads * shape.head_size, seed++));
      v_.push_back(RandomFloats(int64_t{length} * shape.kv_heads * shape.head_size, seed++));
    }
    pool_.blocks = blocks;
    buffer_ = *device.Allocate(blocks * pool_.layout.block_bytes());
    pool_.base = buffer_->data();
  }

  // One step: rows [begins[i], ends[i]) of every sequence i, batched. Returns the rows in that
  // order.
  std::vector<float> Step(const std::vector<int32_t>& begins, const std::vector<int32_t>& ends) {
    std::vector<AttentionSequence> sequences;
    std::vector<float> q;
    std::vector<float> k;
    std::vector<float> v;
    int32_t row = 0;
    const auto append = [](std::vector<float>& to, const std::vector<float>& from, int64_t begin,
                           int64_t end, int64_t floats) {
      to.insert(to.end(), from.begin() + begin * floats, from.begin() + end * floats);
    };
    for (size_t i = 0; i < lengths_.size(); ++i) {
      const int32_t rows = ends[i] - begins[i];
      if (rows == 0) continue;
      sequences.push_back(
          {.row_begin = row, .rows = rows, .position_begin = begins[i], .block_table = tables_[i]});
      append(q, q_[i], begins[i], ends[i], int64_t{shape_.q_heads} * shape_.head_size);
      append(k, k_[i], begins[i], ends[i], int64_t{shape_.kv_heads} * shape_.head_size);
      append(v, v_[i], begins[i], ends[i], int64_t{shape_.kv_heads} * shape_.head_size);
      row += rows;
    }
    std::vector<float> out(q.size(), NAN);
    device_.ops().StoreKv({&pool_, kLayer, k.data(), v.data(), sequences});
    device_.ops().Attention({.pool = &pool_,
                             .layer = kLayer,
                             .q_heads = shape_.q_heads,
                             .q = q.data(),
                             .out = out.data(),
                             .sequences = sequences,
                             .scale = kScale,
                             .softcap = shape_.softcap,
                             .window = shape_.window});
    return out;
  }

  std::vector<float> WholeStep() {
    return Step(std::vector<int32_t>(lengths_.size(), 0), lengths_);
  }

  // Every sequence on its own, in chunks of `chunk` rows; the rows in order of sequences.
  std::vector<float> InChunks(int32_t chunk) {
    std::vector<float> all;
    for (size_t i = 0; i < lengths_.size(); ++i) {
      for (int32_t begin = 0; begin < lengths_[i]; begin += chunk) {
        std::vector<int32_t> begins(lengths_.size(), 0);
        std::vector<int32_t> ends(lengths_.size(), 0);
        begins[i] = begin;
        ends[i] = std::min(lengths_[i], begin + chunk);
        const std::vector<float> rows = Step(begins, ends);
        all.insert(all.end(), rows.begin(), rows.end());
      }
    }
    return all;
  }

  std::vector<float> Expected() const {
    std::vector<float> all;
    const kernels::reference::AttentionShape shape = {
        shape_.q_heads, shape_.kv_heads, shape_.head_size, kScale, shape_.softcap, shape_.window};
    const int64_t q_floats = int64_t{shape_.q_heads} * shape_.head_size;
    for (size_t i = 0; i < lengths_.size(); ++i) {
      const std::vector<float> k = AsStored(k_[i]);
      const std::vector<float> v = AsStored(v_[i]);
      std::vector<float> out(q_[i].size());
      for (int32_t p = 0; p < lengths_[i]; ++p) {
        kernels::reference::Attention(q_[i].data() + p * q_floats, k.data(), v.data(), p, shape,
                                      out.data() + p * q_floats);
      }
      all.insert(all.end(), out.begin(), out.end());
    }
    return all;
  }

  const KvPool& pool() const { return pool_; }

 private:
  static constexpr float kScale = 0.17F;

  int32_t BlocksFor(int32_t length) const {
    const int32_t tokens = pool_.layout.tokens_per_block;
    return (length + tokens - 1) / tokens;
  }
  std::vector<float> AsStored(std::vector<float> values) const {
    const auto size = static_cast<size_t>(shape_.head_size);
    if (shape_.dtype == DType::kF16) {
      for (float& value : values) value = kernels::HalfToFloat(kernels::FloatToHalf(value));
    }
    for (size_t i = 0; shape_.dtype == DType::kI8 && i < values.size(); i += size) {
      float largest = 0.0F;
      for (size_t d = 0; d < size; ++d) largest = std::max(largest, std::abs(values[i + d]));
      for (size_t d = 0; d < size; ++d) {
        values[i + d] = std::nearbyint(values[i + d] * (127.0F / largest)) * (largest / 127.0F);
      }
    }
    return values;
  }

  Device& device_;
  Shape shape_;
  std::vector<int32_t> lengths_;
  KvPool pool_;
  std::unique_ptr<DeviceBuffer> buffer_;
  std::vector<std::vector<BlockId>> tables_;
  std::vector<std::vector<float>> q_, k_, v_;
};

// Beside 8-bit keys and values, queries and weights are rounded to 16 bits.
void ExpectNear(const std::vector<float>& out, const std::vector<float>& expected, DType dtype) {
  const double tolerance = dtype == DType::kI8 ? 5e-4 : 5e-6;
  ASSERT_EQ(out.size(), expected.size());
  for (size_t i = 0; i < out.size(); ++i) ASSERT_NEAR(out[i], expected[i], tolerance) << i;
}

class AttentionConformance : public ::testing::TestWithParam<DeviceCase> {
 protected:
  void SetUp() override {
    device_ = MakeDevice(GetParam().options);
    ASSERT_NE(device_, nullptr);
  }
  std::unique_ptr<Device> device_;
};

TEST_P(AttentionConformance, IsTheReference) {
  for (const Shape& shape :
       {Shape{}, Shape{.dtype = DType::kF32}, Shape{.window = 24},
        Shape{.softcap = 3.0F, .window = 300}, Shape{.q_heads = 3, .kv_heads = 3, .head_size = 20},
        Shape{.q_heads = 4, .kv_heads = 1, .head_size = 80},
        Shape{.q_heads = 20, .kv_heads = 1, .head_size = 16},
        Shape{.head_size = 12, .dtype = DType::kF32, .window = 1}, Shape{.dtype = DType::kI8},
        Shape{.head_size = 80, .dtype = DType::kI8, .window = 65},
        Shape{.q_heads = 4, .kv_heads = 4, .head_size = 12, .dtype = DType::kI8}}) {
    PagedSequences sequences(*device_, shape, {290, 1, 17, 64}, 16);
    ExpectNear(sequences.WholeStep(), sequences.Expected(), shape.dtype);
  }
}

TEST_P(AttentionConformance, AnyChunkGivesTheSameBits) {
  for (const Shape& shape : {Shape{}, Shape{.window = 40}, Shape{.dtype = DType::kI8},
                             Shape{.dtype = DType::kI8, .window = 65}}) {
    PagedSequences sequences(*device_, shape, {300, 20}, 16);
    const std::vector<uint32_t> whole = BitsOf(sequences.WholeStep());
    for (const int32_t chunk : {1, 7, 16, 100, 257}) {
      ASSERT_EQ(BitsOf(sequences.InChunks(chunk)), whole) << "chunk " << chunk;
    }
  }
}

TEST_P(AttentionConformance, AnyBlockSizeGivesTheSameBits) {
  for (const DType dtype : {DType::kF16, DType::kI8}) {
    std::vector<uint32_t> first;
    for (const int32_t tokens_per_block : {16, 8, 24, 32, 304}) {
      PagedSequences sequences(*device_, {.dtype = dtype}, {300, 33}, tokens_per_block);
      const std::vector<uint32_t> bits = BitsOf(sequences.WholeStep());
      if (first.empty()) first = bits;
      ASSERT_EQ(bits, first) << tokens_per_block;
    }
  }
}

TEST_P(AttentionConformance, AnyThreadCountGivesTheSameBits) {
  for (const DType dtype : {DType::kF16, DType::kI8}) {
    std::vector<uint32_t> first;
    for (const int32_t threads : {1, 2, 3, 8}) {
      CpuOptions options = GetParam().options;
      options.threads = threads;
      const auto device = MakeDevice(options);
      PagedSequences sequences(*device, {.dtype = dtype}, {600, 3}, 16);
      // The last row alone is cut into chunks when there are several threads.
      std::vector<float> out = sequences.WholeStep();
      const std::vector<float> last = sequences.Step({599, 2}, {600, 3});
      out.insert(out.end(), last.begin(), last.end());
      if (first.empty()) first = BitsOf(out);
      ASSERT_EQ(BitsOf(out), first) << threads;
    }
  }
}

TEST_P(AttentionConformance, StoreTouchesItsOwnRowsOnly) {
  const Shape shape = {.q_heads = 2, .kv_heads = 2, .head_size = 8, .dtype = DType::kF32};
  PagedSequences sequences(*device_, shape, {20}, 8);
  const KvPool& pool = sequences.pool();
  const int64_t bytes = pool.blocks * pool.layout.block_bytes();
  sequences.Step({0}, {12});
  int64_t written = 0;
  for (int64_t i = 0; i < bytes; i += 4) {
    float value;
    std::memcpy(&value, pool.base + i, sizeof(value));
    written += value != 0.0F ? 1 : 0;
  }
  EXPECT_EQ(written, 12 * 2 * 2 * 8);  // tokens, K and V, heads, elements
}

TEST_P(AttentionConformance, ANumberThatIsNoneSpoilsOnlyWhoSeesIt) {
  for (const DType dtype : {DType::kF16, DType::kI8}) {
    PagedSequences clean(*device_, {.dtype = dtype}, {40, 40}, 16);
    const std::vector<float> expected = clean.WholeStep();
    PagedSequences spoiled(*device_, {.dtype = dtype}, {40, 40}, 16);
    spoiled.WholeStep();
    // A reused block may hold anything beyond the tokens that are stored.
    std::memset(spoiled.pool().base, 0xFF,
                static_cast<size_t>(spoiled.pool().blocks * spoiled.pool().layout.block_bytes()));
    EXPECT_EQ(BitsOf(spoiled.WholeStep()), BitsOf(expected));
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, AttentionConformance, ::testing::ValuesIn(DeviceCases()),
                         [](const auto& tested) { return tested.param.name; });

}  // namespace
}  // namespace polysil
