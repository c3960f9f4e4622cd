#include "daemon/machine_memory.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace polysil {
namespace {

class MachineMemoryTest : public testing::Test {
 protected:
  void Write(const std::string& path, const std::string& text) {
    const std::filesystem::path full = root_ + path;
    std::filesystem::create_directories(full.parent_path());
    std::ofstream(full) << text;
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  const std::string root_ = testing::TempDir() + "/memory_" +
                            testing::UnitTest::GetInstance()->current_test_info()->name();
};

TEST_F(MachineMemoryTest, TakesTheMachinesFigure) {
  Write("/proc/meminfo", "MemTotal:  9 kB\nMemFree: 1 kB\nMemAvailable:   1000 kB\n");
  EXPECT_EQ(MemoryAvailableBytes(root_), 1000 * 1024);
}

TEST_F(MachineMemoryTest, ACgroupLimitIsLess) {
  Write("/proc/meminfo", "MemAvailable:   1000000 kB\n");
  Write("/proc/self/cgroup", "0::/pod/a\n");
  Write("/sys/fs/cgroup/pod/a/memory.max", "5000\n");
  Write("/sys/fs/cgroup/pod/a/memory.current", "3000\n");
  Write("/sys/fs/cgroup/pod/a/memory.stat", "anon 1\ninactive_file 500\n");
  EXPECT_EQ(MemoryAvailableBytes(root_), 2500);
}

TEST_F(MachineMemoryTest, NoLimitIsNoLimit) {
  Write("/proc/meminfo", "MemAvailable:   10 kB\n");
  Write("/proc/self/cgroup", "0::/\n");
  Write("/sys/fs/cgroup/memory.max", "max\n");
  Write("/sys/fs/cgroup/memory.current", "3000\n");
  EXPECT_EQ(MemoryAvailableBytes(root_), 10 * 1024);
}

TEST_F(MachineMemoryTest, ThisMachineHasSome) {
  EXPECT_GT(MemoryAvailableBytes(), 1 << 20);
}

}  // namespace
}  // namespace polysil
