#include "bench/load_prompts.h"

#include <algorithm>
#include <boost/json.hpp>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/random.h"

namespace polysil {
namespace {

namespace json = boost::json;

constexpr int32_t kInputTokensDefault = 128;
constexpr uintmax_t kFileBytesMax = uintmax_t{1} << 30;

constexpr std::string_view kWords[] = {
    "air",    "arm",   "bank",  "bed",   "bird",   "blood", "boat",   "body",  "book",   "box",
    "bridge", "car",   "case",  "cat",   "chair",  "child", "city",   "cloud", "coat",   "cold",
    "corn",   "cow",   "cup",   "day",   "desk",   "dog",   "door",   "earth", "eye",    "face",
    "farm",   "field", "fire",  "fish",  "floor",  "food",  "foot",   "game",  "garden", "glass",
    "gold",   "grass", "hand",  "head",  "heart",  "hill",  "home",   "horse", "house",  "ice",
    "king",   "lake",  "land",  "leaf",  "letter", "light", "map",    "milk",  "moon",   "morning",
    "music",  "name",  "night", "paper", "river",  "road",  "room",   "salt",  "school", "sea",
    "ship",   "snow",  "song",  "star",  "stone",  "story", "street", "sun",   "table",  "time",
    "town",   "train", "tree",  "wall",  "war",    "water", "week",   "wind",  "window", "winter",
    "woman",  "wood",  "word",  "work",  "world",  "year"};

// Keys of Mix, so that no two kinds of text are equal by chance.
enum class TextKind : uint64_t { kPrefix, kTurn, kBlock };

uint64_t SeedOf(uint64_t seed, TextKind kind, uint64_t index) {
  return Mix(Mix(seed, static_cast<uint64_t>(kind)), index);
}

StatusOr<std::vector<std::string>> ParseConversation(const std::string& line, int32_t turns_max) {
  boost::system::error_code error;
  const json::value value = json::parse(line, error);
  if (error) return InvalidArgument("it is no JSON ({})", error.message());
  const json::object* object = value.if_object();
  if (object == nullptr) return InvalidArgument("it is no JSON object");
  std::vector<std::string> turns;
  const auto add = [&turns](const json::value& turn) {
    if (!turn.is_string()) return false;
    turns.emplace_back(turn.get_string());
    return true;
  };
  if (const json::value* list = object->if_contains("turns")) {
    if (!list->is_array() || list->get_array().empty()) {
      return InvalidArgument("turns is no list with something in it");
    }
    for (const json::value& turn : list->get_array()) {
      if (static_cast<int32_t>(turns.size()) == turns_max) break;
      if (!add(turn)) return InvalidArgument("turns holds something that is no text");
    }
    return turns;
  }
  for (const char* name : {"prompt", "text"}) {
    const json::value* text = object->if_contains(name);
    if (text == nullptr) continue;
    if (!add(*text)) return InvalidArgument("{} is no text", name);
    return turns;
  }
  return InvalidArgument("it has none of turns, prompt and text");
}

}  // namespace

StatusOr<std::vector<std::vector<std::string>>> ReadPrompts(const std::string& path,
                                                            int32_t turns_max) {
  std::error_code error;
  if (const auto bytes = std::filesystem::file_size(path, error); !error && bytes > kFileBytesMax) {
    return InvalidArgument("{} has more than {} bytes", path, kFileBytesMax);
  }
  std::ifstream file(path);
  if (!file.is_open()) return NotFound("{} cannot be opened", path);
  std::vector<std::vector<std::string>> conversations;
  std::string line;
  for (int64_t number = 1; std::getline(file, line); ++number) {
    if (line.empty()) continue;
    StatusOr<std::vector<std::string>> turns = ParseConversation(line, turns_max);
    if (!turns.ok()) {
      return InvalidArgument("{}, line {}: {}", path, number, Message(turns.status()));
    }
    conversations.push_back(*std::move(turns));
  }
  if (file.bad()) return InvalidArgument("{} cannot be read to its end", path);
  if (conversations.empty()) return InvalidArgument("{} has no prompt", path);
  return conversations;
}

StatusOr<LoadPrompts> LoadPrompts::Create(const LoadOptions& options) {
  LoadPrompts prompts;
  prompts.seed_ = options.seed;
  prompts.input_tokens_ = options.input_tokens > 0 ? options.input_tokens : kInputTokensDefault;
  prompts.prefix_tokens_ = options.shared_prefix_tokens;
  prompts.turns_ = options.turns;
  prompts.output_tokens_ = options.output_tokens;
  if (!options.prompts_path.empty()) {
    ASSIGN_OR_RETURN(prompts.conversations_, ReadPrompts(options.prompts_path, options.turns));
  }
  if (!options.trace_path.empty()) {
    ASSIGN_OR_RETURN(prompts.trace_, ReadTrace(options.trace_path));
  }
  return prompts;
}

std::string LoadPrompts::CommonWords(int64_t words, uint64_t seed) {
  Random random(seed);
  std::string text;
  for (int64_t i = 0; i < words; ++i) {
    if (i > 0) text += ' ';
    text += kWords[random.Next() % std::size(kWords)];
  }
  return text;
}

std::string LoadPrompts::Words(int64_t tokens, uint64_t seed) const {
  const auto words = std::llround(static_cast<double>(tokens) * words_per_token_);
  return CommonWords(std::max<int64_t>(1, words), seed);
}

std::string LoadPrompts::TraceText(const TraceRequest& request) const {
  std::string text;
  int64_t left = request.prompt_tokens;
  for (const uint32_t id : request.block_ids) {
    if (!text.empty()) text += ' ';
    text += Words(std::min<int64_t>(left, kTraceTokensPerBlock), SeedOf(0, TextKind::kBlock, id));
    left -= kTraceTokensPerBlock;
  }
  return text;
}

LoadSession LoadPrompts::Session(int64_t index) const {
  const auto number = static_cast<uint64_t>(index);
  LoadSession session{.output_tokens = output_tokens_};
  if (!trace_.empty()) {
    const TraceRequest& request = trace_[number % trace_.size()];
    session.turns = {TraceText(request)};
    session.output_tokens = request.output_tokens;
    return session;
  }
  if (prefix_tokens_ > 0) {
    session.system = Words(prefix_tokens_, SeedOf(seed_, TextKind::kPrefix, 0));
  }
  if (!conversations_.empty()) {
    session.turns = conversations_[number % conversations_.size()];
    return session;
  }
  for (int32_t turn = 0; turn < turns_; ++turn) {
    const uint64_t place = number * static_cast<uint64_t>(turns_) + static_cast<uint64_t>(turn);
    session.turns.push_back(Words(input_tokens_, SeedOf(seed_, TextKind::kTurn, place)));
  }
  return session;
}

}  // namespace polysil
