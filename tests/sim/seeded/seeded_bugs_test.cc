// Each seeded bug of the engine must be noticed, by a scenario or by a random simulation. The
// program runs itself with one bug planted, on the scenarios and then on seeds, and prints the list
// of bugs and of what caught them.
//
//   test_seeded_bugs                                   all bugs
//   test_seeded_bugs --plant=NAME --gtest_filter=...   with one bug: Files/ScenarioTest.*, Seeds.*
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <string>
#include <string_view>

#include "base/seeded_bug.h"

namespace polysil {
namespace {

std::string& Planted() {
  static std::string name;
  return name;
}

// A bug may make something endless; it is noticed then.
constexpr unsigned int kSecondsMax = 120;

}  // namespace

bool IsPlanted(std::string_view name) {
  return Planted() == name;
}
void Plant(std::string_view name) {
  Planted() = name;
  ::alarm(kSecondsMax);
}

namespace {

// The names at the markers in the sources.
std::set<std::string> BugsInTheSources() {
  std::set<std::string> bugs;
  const std::regex marker("SEEDED_BUG\\((\\w+)\\)");
  for (const char* layer : {"core", "kv", "sched", "engine"}) {
    for (const auto& entry :
         std::filesystem::directory_iterator(POLYSIL_SOURCE_DIR "/src/" + std::string(layer))) {
      std::ifstream file(entry.path());
      const std::string text{std::istreambuf_iterator<char>(file), {}};
      for (std::sregex_iterator match(text.begin(), text.end(), marker), end; match != end;
           ++match) {
        bugs.insert((*match)[1]);
      }
    }
  }
  return bugs;
}

// What this program says with the bug planted. Empty: it passes.
std::string Catcher(const std::string& bug, const std::string& filter) {
  const std::string program = std::filesystem::read_symlink("/proc/self/exe");
  const std::string command = "'" + program + "' --plant=" + bug + " --gtest_filter=" + filter +
                              " --gtest_fail_fast --gtest_brief=0 2>&1";
  std::FILE* pipe = ::popen(command.c_str(), "r");
  if (pipe == nullptr) return "";
  std::string test;
  std::string said;
  bool failed = false;
  std::array<char, 4096> line;
  while (std::fgets(line.data(), line.size(), pipe) != nullptr) {
    const std::string_view text(line.data());
    constexpr std::string_view kRun = "[ RUN      ] ";
    constexpr std::string_view kFailed = "[  FAILED  ] ";
    // One that aborts is the last that began; one that fails says so, and the rest is skipped.
    if (!failed && (text.starts_with(kRun) || text.starts_with(kFailed))) {
      test = text.substr(kRun.size(), text.find_first_of(", \n", kRun.size()) - kRun.size());
      failed = text.starts_with(kFailed);
    }
    // The sentence of a check, or of a broken invariant.
    if (said.empty() &&
        (text.find("; to see it: ") != text.npos || text.find("broken invariant: ") != text.npos)) {
      said = text.substr(0, text.find_last_not_of('\n') + 1);
    }
  }
  const int status = ::pclose(pipe);
  if (status == 0) return "";
  return said.empty() ? test : test + ": " + said;
}

TEST(SeededBugs, AreAllCaught) {
  const std::set<std::string> bugs = BugsInTheSources();
  EXPECT_GE(bugs.size(), 12U);
  for (const std::string& bug : bugs) {
    const std::string scenario = Catcher(bug, "Files/ScenarioTest.*");
    const std::string seed = Catcher(bug, "Seeds.*");
    std::printf("%s\n  scenario: %s\n  seed: %s\n", bug.c_str(),
                scenario.empty() ? "none" : scenario.c_str(), seed.empty() ? "none" : seed.c_str());
    std::fflush(stdout);
    EXPECT_FALSE(scenario.empty() && seed.empty()) << bug << " is noticed by nobody";
  }
}

// Without a bug both pass: what catches is not failing anyhow.
TEST(SeededBugs, NothingIsCaughtWhereNothingIsPlanted) {
  EXPECT_EQ(Catcher("none", "Files/ScenarioTest.*"), "");
  EXPECT_EQ(Catcher("none", "Seeds.*"), "");
}

}  // namespace
}  // namespace polysil

int main(int argc, char** argv) {
  constexpr std::string_view kPlant = "--plant=";
  bool planted = false;
  for (int i = 1; i < argc; ++i) {
    if (!std::string_view(argv[i]).starts_with(kPlant)) continue;
    polysil::Plant(argv[i] + kPlant.size());
    planted = true;
  }
  testing::InitGoogleTest(&argc, argv);
  if (!planted && testing::GTEST_FLAG(filter) == "*") {
    testing::GTEST_FLAG(filter) = "SeededBugs.*";
  }
  return RUN_ALL_TESTS();
}
