// A folder for one test, removed at its end.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

namespace polysil {

class TempFolder final {
 public:
  TempFolder() {
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    std::string name = std::string(test->test_suite_name()) + "_" + test->name();
    for (char& c : name) {
      if (c == '/') c = '_';
    }
    path_ = ::testing::TempDir() + "polysil_" + std::to_string(::getpid()) + "_" + name;
    std::filesystem::remove_all(path_);
    std::filesystem::create_directories(path_);
  }
  ~TempFolder() { std::filesystem::remove_all(path_); }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;

  const std::string& path() const { return path_; }
  // The file's path.
  std::string Write(std::string_view name, std::string_view text) const {
    const std::string path = path_ + "/" + std::string(name);
    std::ofstream(path, std::ios::binary | std::ios::trunc).write(text.data(), text.size());
    return path;
  }

 private:
  std::string path_;
};

}  // namespace polysil
