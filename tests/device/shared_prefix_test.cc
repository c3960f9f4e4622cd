// Sequences that begin with the same blocks: what they get in one step is what each gets alone, bit
// for bit, whatever else is in the step.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "device/device_rig.h"

namespace polysil {
namespace {

using kernels::BitsOf;
using kernels::RandomFloats;

struct TreeShape {
  int32_t q_heads = 6;
  int32_t kv_heads = 2;
  int32_t head_size = 64;
  DType dtype = DType::kF16;
  int32_t tokens_per_block = 16;
  int32_t window = 0;
};

// A pool filled with random keys and values, and steps of sequences over any of its blocks.
class RandomPool {
 public:
  RandomPool(Device& device, const TreeShape& shape, int32_t blocks, uint32_t seed)
      : device_(device), shape_(shape) {
    pool_.layout = {.layers = 1,
                    .kv_heads = shape.kv_heads,
                    .head_size = shape.head_size,
                    .tokens_per_block = shape.tokens_per_block,
                    .dtype = shape.dtype};
    pool_.blocks = blocks;
    buffer_ = *device.Allocate(blocks * pool_.layout.block_bytes());
    pool_.base = buffer_->data();
    std::vector<BlockId> all;
    for (int32_t b = 0; b < blocks; ++b) all.push_back({b});
    const AttentionSequence whole = {.rows = blocks * shape.tokens_per_block, .block_table = all};
    const int64_t floats = int64_t{whole.rows} * shape.kv_heads * shape.head_size;
    const std::vector<float> k = RandomFloats(floats, seed);
    const std::vector<float> v = RandomFloats(floats, seed + 1);
    device.ops().StoreKv({&pool_, 0, k.data(), v.data(), {&whole, 1}});
  }

  // Rows of q and out of the step in order of the sequences.
  void Attend(std::span<const AttentionSequence> sequences, const float* q, float* out) {
    device_.ops().Attention({.pool = &pool_,
                             .layer = 0,
                             .q_heads = shape_.q_heads,
                             .q = q,
                             .out = out,
                             .sequences = sequences,
                             .scale = 0.17F,
                             .window = shape_.window});
  }
  int64_t RowFloats() const { return int64_t{shape_.q_heads} * shape_.head_size; }

 private:
  Device& device_;
  TreeShape shape_;
  KvPool pool_;
  std::unique_ptr<DeviceBuffer> buffer_;
};

struct Batch {
  std::vector<std::vector<BlockId>> tables;
  std::vector<AttentionSequence> sequences;
  int32_t rows = 0;

  void Add(std::vector<BlockId> table, int32_t position_begin, int32_t count) {
    tables.push_back(std::move(table));
    sequences.push_back({.row_begin = rows, .rows = count, .position_begin = position_begin});
    rows += count;
    for (size_t i = 0; i < tables.size(); ++i) sequences[i].block_table = tables[i];
  }
};

// Sequences over `blocks` blocks, each of which goes on from a part of one before it, or begins
// anew; decodes, small chunks and large ones.
Batch RandomTree(std::mt19937& random, int32_t blocks, int32_t tokens_per_block) {
  const auto below = [&](int32_t n) {
    return static_cast<int32_t>(random() % static_cast<uint32_t>(n));
  };
  Batch batch;
  for (int32_t s = 2 + below(12); s > 0; --s) {
    std::vector<BlockId> table;
    if (!batch.tables.empty() && below(5) > 0) {
      table = batch.tables[static_cast<size_t>(below(static_cast<int32_t>(batch.tables.size())))];
      // Often all of it: then positions may end within what is shared.
      if (below(2) == 0) table.resize(table.size() - static_cast<size_t>(below(4)) % table.size());
    }
    const int32_t grown = table.empty() ? 40 + below(60) : below(20);
    for (int32_t i = 0; i < grown; ++i) table.push_back({below(blocks)});
    const auto room = static_cast<int32_t>(table.size()) * tokens_per_block;
    const int32_t rows = std::min(room, below(5) == 0 ? 1 + below(40) : 1 + below(3));
    const int32_t back = below(3) == 0 ? below(room - rows + 1) : below(tokens_per_block);
    batch.Add(std::move(table), std::max(0, room - rows - back), rows);
  }
  return batch;
}

class SharedPrefix : public ::testing::TestWithParam<DeviceCase> {};

TEST_P(SharedPrefix, EveryRowIsAsAlone) {
  std::mt19937 random(3);
  for (const TreeShape& shape :
       {TreeShape{}, TreeShape{.window = 300}, TreeShape{.window = 65},
        TreeShape{.q_heads = 3, .kv_heads = 1, .head_size = 20},
        TreeShape{.q_heads = 12, .dtype = DType::kF32}, TreeShape{.dtype = DType::kI8},
        TreeShape{.head_size = 12, .dtype = DType::kI8, .window = 257},
        TreeShape{.head_size = 16, .tokens_per_block = 24}}) {
    CpuOptions options = GetParam().options;
    for (const int32_t threads : {1, 2, 3}) {
      options.threads = threads;
      const auto device = MakeDevice(options);
      constexpr int32_t kBlocks = 90;
      RandomPool pool(*device, shape, kBlocks, 40);
      const int rounds = options.isa == kernels::Isa::kPortable ? 1 : 12;  // it is slow
      for (int round = 0; round < rounds; ++round) {
        const Batch batch = RandomTree(random, kBlocks, shape.tokens_per_block);
        const std::vector<float> q = RandomFloats(batch.rows * pool.RowFloats(), random());
        std::vector<float> together(q.size(), NAN);
        pool.Attend(batch.sequences, q.data(), together.data());
        std::vector<float> alone(q.size(), NAN);
        for (AttentionSequence sequence : batch.sequences) {
          const int64_t first = sequence.row_begin * pool.RowFloats();
          sequence.row_begin = 0;
          pool.Attend({&sequence, 1}, q.data() + first, alone.data() + first);
        }
        ASSERT_EQ(BitsOf(together), BitsOf(alone))
            << "threads " << threads << " window " << shape.window << " head size "
            << shape.head_size << " round " << round;
      }
    }
  }
}

TEST_P(SharedPrefix, NothingIsAllocatedAfterTheFirstStep) {
  const auto device = MakeDevice(GetParam().options);
  RandomPool pool(*device, TreeShape{}, 90, 40);
  std::mt19937 random(4);
  const Batch batch = RandomTree(random, 90, 16);
  const std::vector<float> q = RandomFloats(batch.rows * pool.RowFloats(), 7);
  std::vector<float> out(q.size());
  pool.Attend(batch.sequences, q.data(), out.data());
  const int64_t before = AllocationsSoFar();
  pool.Attend(batch.sequences, q.data(), out.data());
  // Fewer of them, which may be cut in another way.
  for (size_t few = 1; few < batch.sequences.size(); ++few) {
    pool.Attend({batch.sequences.data(), few}, q.data(), out.data());
  }
  EXPECT_EQ(AllocationsSoFar() - before, 0);
}

// Activations play no part.
std::vector<DeviceCase> CasesOfAttention() {
  std::vector<DeviceCase> cases = DeviceCases();
  std::erase_if(cases,
                [](const DeviceCase& c) { return c.options.activations != CpuActivations::kQ8; });
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Devices, SharedPrefix, ::testing::ValuesIn(CasesOfAttention()),
                         [](const auto& tested) { return tested.param.name; });

}  // namespace
}  // namespace polysil
