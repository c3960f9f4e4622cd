// GGUF files cut short and with bytes changed: each must open or be refused with one sentence,
// quickly, with little memory, and without a signal. Run under AddressSanitizer this is the
// loader's fuzz test.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "model/gguf.h"
#include "model/golden_model.h"
#include "model/temp_files.h"

namespace polysil {
namespace {

std::vector<std::string> TinyFiles() {
  std::vector<std::string> paths = {std::string(POLYSIL_SOURCE_DIR) +
                                    "/tests/data/model/llama-mixed.gguf"};
  for (const char* name : {"gemma3-q4_0", "llama-f16", "llama-kquants", "qwen2-q8_0"}) {
    const std::string path = golden::SharedPath(std::string("tiny/gguf/") + name + ".gguf");
    if (golden::Exists(path)) paths.push_back(path);
  }
  return paths;
}

int64_t PeakKilobytes() {
  struct rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss;
}

void ExpectOneSentence(const Status& status) {
  const std::string message = Message(status);
  EXPECT_FALSE(message.empty());
  EXPECT_LT(message.size(), 1000U);
  EXPECT_EQ(message.find('\n'), std::string::npos) << message;
}

TEST(HostileGguf, CutAtEveryKilobyte) {
  TempFolder folder;
  const int64_t peak_before = PeakKilobytes();
  for (const std::string& path : TinyFiles()) {
    const std::string file = golden::ReadFile(path);
    for (size_t size = 0; size < file.size(); size += 1024) {
      const std::string cut = folder.Write("cut.gguf", std::string_view(file).substr(0, size));
      const Status status = OpenCheckpoint(cut).status();
      ASSERT_FALSE(status.ok()) << path << " cut at " << size;
      ExpectOneSentence(status);
      EXPECT_FALSE(InspectCheckpoint(cut).ok());
    }
    // By one byte, too.
    EXPECT_FALSE(
        OpenCheckpoint(folder.Write("cut.gguf", std::string_view(file).substr(0, file.size() - 1)))
            .ok());
    EXPECT_TRUE(OpenCheckpoint(folder.Write("cut.gguf", file)).ok());
  }
  // A sanitizer keeps freed memory back.
  if (!golden::kSanitized) {
    EXPECT_LT(PeakKilobytes() - peak_before, 64 * 1024);
  }
}

// The real model: its head at every kilobyte, its data more coarsely. Only the parser, over the
// mapped bytes: writing 96,000 copies of up to 98 MB would show nothing more.
TEST(HostileGguf, TheRealModelCut) {
  const std::string path =
      std::string(POLYSIL_SOURCE_DIR) + "/models/SmolLM2-135M-Instruct.Q4_1.gguf";
  if (!golden::Exists(path)) GTEST_SKIP() << path << " is not there";
  const std::string file = golden::ReadFile(path);
  const auto bytes = std::as_bytes(std::span(file.data(), file.size()));
  ASSERT_TRUE(GgufFile::Parse(bytes).ok());
  constexpr size_t kHead = 1 << 21;
  for (size_t size = 0; size < file.size(); size += size < kHead ? 16384 : 1 << 20) {
    const Status status = GgufFile::Parse(bytes.first(size)).status();
    ASSERT_FALSE(status.ok()) << size;
    ExpectOneSentence(status);
  }
}

// Changes a mapped file in place and restores it.
class MutableFile final {
 public:
  explicit MutableFile(const std::string& path)
      : stream_(path, std::ios::in | std::ios::out | std::ios::binary) {}
  void Put(size_t place, std::string_view bytes) {
    stream_.seekp(static_cast<std::streamoff>(place));
    stream_.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    stream_.flush();
  }

 private:
  std::fstream stream_;
};

struct Tally {
  int64_t opened = 0;
  int64_t refused = 0;
};

void Try(const std::string& path, Tally& tally) {
  const auto checkpoint = OpenCheckpoint(path);
  if (!checkpoint.ok()) {
    ++tally.refused;
    ExpectOneSentence(checkpoint.status());
    return;
  }
  ++tally.opened;
  // What opened is consistent: everything that it promises can be read.
  const ModelSpec& spec = (*checkpoint)->spec();
  ASSERT_EQ((*checkpoint)->weights().layers.size(), spec.layers.size());
  int64_t sum = 0;
  for (const LayerWeights& layer : (*checkpoint)->weights().layers) {
    for (const HostTensor* tensor : {&layer.q, &layer.k, &layer.v, &layer.attention_output,
                                     &layer.gate, &layer.up, &layer.down}) {
      const DTypeInfo& info = Info(tensor->dtype);
      const int64_t bytes =
          tensor->rows * (tensor->cols / info.values_per_block * info.bytes_per_block);
      sum += std::to_integer<int64_t>(tensor->data[0]) +
             std::to_integer<int64_t>(tensor->data[bytes - 1]);
    }
  }
  ASSERT_GE(sum, 0);
}

// Where the data of the tensors begins: everything before it is structure.
size_t HeadSize(const std::string& file) {
  const auto parsed = GgufFile::Parse(std::as_bytes(std::span(file.data(), file.size())));
  EXPECT_TRUE(parsed.ok());
  return parsed->tensors()[0].data.data() - reinterpret_cast<const std::byte*>(file.data());
}

TEST(HostileGguf, ChangedBytes) {
  TempFolder folder;
  const int64_t peak_before = PeakKilobytes();
  Tally tally;
  std::mt19937_64 random(1);
  for (const std::string& source : TinyFiles()) {
    const std::string file = golden::ReadFile(source);
    const size_t head = HeadSize(file);
    const std::string path = folder.Write("changed.gguf", file);
    MutableFile changed(path);
    // The token and merge strings fill most of the head; numbers and lengths stand around them.
    for (int i = 0; i < 1500; ++i) {
      const int count = 1 + static_cast<int>(random() % 3);
      std::vector<size_t> places;
      for (int j = 0; j < count; ++j) {
        const size_t place = random() % 3 == 0 ? random() % std::min<size_t>(head, 1024)
                             : random() % 2 == 0
                                 ? head - 1 - random() % std::min<size_t>(head, 2048)
                                 : random() % head;
        places.push_back(place);
        constexpr unsigned char kExtremes[] = {0x00, 0x01, 0x7f, 0x80, 0xff, 0xfe};
        const auto byte = random() % 2 == 0 ? static_cast<char>(random())
                                            : static_cast<char>(kExtremes[random() % 6]);
        changed.Put(place, std::string_view(&byte, 1));
      }
      Try(path, tally);
      for (const size_t place : places) changed.Put(place, std::string_view(file).substr(place, 1));
    }
    // Whole numbers: 8 bytes at once, where lengths, counts and offsets stand.
    for (int i = 0; i < 500; ++i) {
      const size_t place =
          random() % 2 == 0 ? random() % std::min<size_t>(head, 1024) : head - 9 - random() % 2048;
      constexpr uint64_t kExtremes[] = {0,
                                        1,
                                        ~uint64_t{0},
                                        ~uint64_t{0} - 7,
                                        uint64_t{1} << 63,
                                        uint64_t{1} << 61,
                                        uint64_t{1} << 32,
                                        0x7fffffff};
      uint64_t number = kExtremes[random() % 8];
      changed.Put(place, std::string_view(reinterpret_cast<const char*>(&number), 8));
      Try(path, tally);
      changed.Put(place, std::string_view(file).substr(place, 8));
    }
    EXPECT_TRUE(OpenCheckpoint(path).ok()) << "restored";
  }
  std::printf("changed files: %lld opened, %lld refused\n", static_cast<long long>(tally.opened),
              static_cast<long long>(tally.refused));
  EXPECT_GT(tally.refused, 500);
  EXPECT_GT(tally.opened, 100) << "else the changes hit nothing but the magic";
  if (!golden::kSanitized) {
    EXPECT_LT(PeakKilobytes() - peak_before, 64 * 1024);
  }
}

}  // namespace
}  // namespace polysil
