// What is particular to the CPU device: options, the order of types, equal bits over threads and
// instruction sets, and no allocation in the step loop.
#include "device/cpu/cpu_device.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "device/device_rig.h"

namespace {

std::atomic<int64_t> allocations = 0;

}  // namespace

namespace polysil {

int64_t AllocationsSoFar() {
  return allocations;
}

}  // namespace polysil

// Counts what the step loop allocates; everything else is as it was.
[[gnu::noinline]] void* operator new(size_t size) {
  ++allocations;
  if (void* memory = std::malloc(size == 0 ? 1 : size)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept {
  std::free(memory);
}

namespace polysil {
namespace {

using kernels::BitsOf;
using kernels::RandomFloats;

TEST(CpuDevice, OptionsAreChecked) {
  EXPECT_EQ(CreateCpuDevice({.threads = -1}).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(CreateCpuDevice({.threads = 100000}).status().code(), StatusCode::kInvalidArgument);
  if (!kernels::Runs(kernels::Isa::kAvx512)) {
    EXPECT_EQ(CreateCpuDevice({.isa = kernels::Isa::kAvx512}).status().code(),
              StatusCode::kFailedPrecondition);
  }
}

TEST(CpuDevice, InfoSaysWhatItIs) {
  const auto q8 = MakeDevice({});
  EXPECT_EQ(q8->info().kind, "cpu");
  EXPECT_EQ(q8->info().numeric_class, "cpu/q8");
  EXPECT_GT(q8->info().memory_bytes, 0);
  EXPECT_NE(q8->info().description.find("thread"), std::string::npos);
  const auto f32 = MakeDevice({.activations = CpuActivations::kF32});
  EXPECT_EQ(f32->info().numeric_class, "cpu/f32");
}

TEST(CpuDevice, TypesAreThoseOfTheKernels) {
  for (const DType dtype : kDTypes) {
    const kernels::WeightBlock block = kernels::BlockOf(LoadedMatrix::TypeOf(dtype));
    EXPECT_EQ(Info(dtype).values_per_block, block.values) << Info(dtype).name;
    EXPECT_EQ(Info(dtype).bytes_per_block, block.bytes) << Info(dtype).name;
  }
}

TEST(CpuDevice, ThreadsAndInstructionSetsGiveTheSameBits) {
  const std::vector<float> x = RandomFloats(9 * 512, 1);
  for (const CpuActivations activations : {CpuActivations::kQ8, CpuActivations::kF32}) {
    for (const DType dtype : kDTypes) {
      std::vector<uint32_t> first;
      for (const DeviceCase& device_case : DeviceCases()) {
        if (device_case.options.activations != activations) continue;
        for (const int32_t threads : {1, 3}) {
          CpuOptions options = device_case.options;
          options.threads = threads;
          const auto device = MakeDevice(options);
          const LoadedMatrix weight(*device, dtype, 43, 512, 2);
          std::vector<float> y(9 * 43);
          const LinearTarget target = {
              .weight = weight.matrix.get(), .out = y.data(), .out_stride = 43};
          device->ops().Linear(x.data(), 9, 512, {&target, 1});
          if (first.empty()) first = BitsOf(y);
          ASSERT_EQ(BitsOf(y), first)
              << device_case.name << " " << threads << " threads, " << Info(dtype).name;
        }
      }
    }
  }
}

// One layer's worth of operations on `rows` rows of one sequence that has `context` tokens before
// them.
struct SmallModel {
  explicit SmallModel(Device& device)
      : embedding(device, DType::kQ8_0, 100, 64, 1),
        q(device, DType::kQ4_1, 64, 64, 2),
        kv(device, DType::kQ6_K, 32, 256, 3),
        head(device, DType::kF16, 100, 64, 4) {
    pool.layout = {.layers = 1, .kv_heads = 2, .head_size = 16};
    pool.blocks = 64;
    buffer = *device.Allocate(pool.blocks * pool.layout.block_bytes());
    pool.base = buffer->data();
    for (int32_t b = 0; b < pool.blocks; ++b) table.push_back({b});
    rope = {.dims = 16, .inv_freqs = std::vector<float>(8, 0.1F)};
    for (auto* floats : {&x, &y, &wide}) floats->resize(64 * 256);
    norm.resize(64, 1.0F);
    for (int32_t i = 0; i < 1024; ++i) positions.push_back(i);
    ids.resize(64, 7);
    gathered.resize(64, 0);
  }

  void Step(Ops& ops, int32_t rows, int32_t context) {
    const AttentionSequence sequence = {
        .rows = rows, .position_begin = context, .block_table = table};
    const auto rows_z = static_cast<size_t>(rows);
    ops.Embed(*embedding.table, {ids.data(), rows_z}, 2.0F, x.data());
    ops.RmsNorm(x.data(), norm.data(), 0.0F, 1e-5F, rows, 64, y.data());
    const LinearTarget targets[] = {
        {.weight = q.matrix.get(), .out = wide.data(), .out_stride = 64},
        {.weight = head.matrix.get(), .out = wide.data() + 64 * 64, .out_stride = 100}};
    ops.Linear(y.data(), rows, 64, targets);
    ops.Rope(wide.data(), {positions.data() + context, rows_z}, 4, 16, rope);
    const LinearTarget kv_target = {.weight = kv.matrix.get(), .out = y.data(), .out_stride = 32};
    ops.Linear(wide.data(), rows, 256, {&kv_target, 1});
    ops.StoreKv({&pool, 0, y.data(), y.data(), {&sequence, 1}});
    ops.Attention({.pool = &pool,
                   .layer = 0,
                   .q_heads = 4,
                   .q = wide.data(),
                   .out = x.data(),
                   .sequences = {&sequence, 1}});
    ops.GatedActivation(Activation::kSilu, x.data(), y.data(), rows, 64, x.data());
    ops.Add(x.data(), y.data(), rows * 64);
    ops.SoftCap(x.data(), 30.0F, rows * 64);
    ops.GatherRows(x.data(), {gathered.data(), rows_z}, 64, y.data());
  }

  LoadedMatrix embedding, q, kv, head;
  KvPool pool;
  std::unique_ptr<DeviceBuffer> buffer;
  std::vector<BlockId> table;
  RopeSpec rope;
  std::vector<float> x, y, wide, norm;
  std::vector<int32_t> positions, gathered;
  std::vector<TokenId> ids;
};

TEST(CpuDevice, TheStepLoopDoesNotAllocate) {
  const auto device = MakeDevice({.threads = 2});
  SmallModel model(*device);
  for (int32_t pass = 0; pass < 5; ++pass) {  // every entry of the rope table sees the largest step
    model.Step(device->ops(), 64, 900 + pass);
    model.Step(device->ops(), 1, 950 + pass);
  }
  const int64_t before = AllocationsSoFar();
  for (int32_t i = 0; i < 50; ++i) {
    model.Step(device->ops(), 1 + i % 64, 10 * i);
    model.Step(device->ops(), 1, 700 + i);
  }
  EXPECT_EQ(AllocationsSoFar() - before, 0);
}

TEST(CpuDevice, MatricesMayBeFreedInAnyOrder) {
  const auto device = MakeDevice({.threads = 1});
  const std::vector<float> x = RandomFloats(512, 3);
  std::vector<std::unique_ptr<LoadedMatrix>> matrices;
  for (uint32_t i = 0; i < 40; ++i) {
    matrices.push_back(std::make_unique<LoadedMatrix>(*device, DType::kF32, 300, 512, i));
  }
  const auto product = [&](const LoadedMatrix& weight) {
    std::vector<float> y(300);
    const LinearTarget target = {.weight = weight.matrix.get(), .out = y.data(), .out_stride = 300};
    device->ops().Linear(x.data(), 1, 512, {&target, 1});
    return y;
  };
  const std::vector<float> expected = product(*matrices[7]);
  for (size_t i = 0; i < matrices.size(); ++i) {
    if (i != 7) matrices[i].reset();
  }
  EXPECT_EQ(product(*matrices[7]), expected);
}

}  // namespace
}  // namespace polysil
