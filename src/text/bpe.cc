#include "text/bpe.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "polysil/base/check.h"
#include "text/space_mark.h"
#include "text/utf8.h"

namespace polysil {
namespace {

constexpr uint32_t kNoRank = std::numeric_limits<uint32_t>::max();
constexpr size_t kShortSymbolsMax = 48;

constexpr char32_t kSpaceMarkCode = 0x2581;
// Scratch above this is given back after use.
constexpr size_t kScratchNodesKept = size_t{1} << 16;

uint64_t HashPair(int32_t left, int32_t right) {
  uint64_t key = (uint64_t{static_cast<uint32_t>(left)} << 32) | static_cast<uint32_t>(right);
  key *= 0x9E3779B97F4A7C15;
  return key ^ (key >> 29);
}

size_t Junction(char last, char first) {
  return size_t{static_cast<uint8_t>(last)} * 256 + static_cast<uint8_t>(first);
}

// One symbol of a word in a doubly linked list.
struct Node {
  int32_t symbol;
  int32_t previous;
  int32_t next;
  uint32_t rank;   // of the pair with the next symbol; kNoRank: none, or this node is gone
  int32_t result;  // of that pair
};

struct BucketEntry {
  int32_t node;
  int32_t next;  // in the same bucket, or -1
};

// Reused by a thread for word after word.
struct Scratch {
  std::vector<int32_t> symbols;
  std::vector<Node> nodes;
  std::vector<BucketEntry> entries;
  std::vector<int32_t> bucket;   // by rank: first entry or -1; all -1 between words
  std::vector<uint32_t> ranks;   // heap of the ranks whose bucket is not empty
  std::vector<uint64_t> urgent;  // heap of rank << 32 | node
  std::vector<int32_t> current;  // the bucket in work, rising
};

Scratch& ThreadScratch() {
  static thread_local Scratch scratch;
  return scratch;
}

}  // namespace

// Merges one long word in (nearly) linear time: pairs wait in one bucket per rank. A merge can make
// a pair of a rank that is not above the one in work; those few go through a heap.
class BpeModel::LongWord {
 public:
  LongWord(const BpeModel& model, Scratch& scratch) : model_(model), s_(scratch) {}

  void Run() {
    Load();
    while (!s_.ranks.empty()) {
      std::pop_heap(s_.ranks.begin(), s_.ranks.end(), std::greater<>());
      in_work_ = s_.ranks.back();
      s_.ranks.pop_back();
      TakeBucket(static_cast<uint32_t>(in_work_));
      size_t cursor = 0;
      while (cursor < s_.current.size() || !s_.urgent.empty()) {
        uint64_t key = std::numeric_limits<uint64_t>::max();
        if (cursor < s_.current.size()) {
          key = Key(static_cast<uint32_t>(in_work_), s_.current[cursor]);
        }
        if (!s_.urgent.empty() && s_.urgent.front() <= key) {
          key = s_.urgent.front();
          std::pop_heap(s_.urgent.begin(), s_.urgent.end(), std::greater<>());
          s_.urgent.pop_back();
        } else {
          ++cursor;
        }
        Merge(static_cast<uint32_t>(key >> 32), static_cast<int32_t>(key & 0xFFFFFFFF));
      }
    }
    Store();
  }

 private:
  static uint64_t Key(uint32_t rank, int32_t node) {
    return (uint64_t{rank} << 32) | static_cast<uint32_t>(node);
  }
  Node& At(int32_t node) { return s_.nodes[static_cast<size_t>(node)]; }

  void Load() {
    const auto count = static_cast<int32_t>(s_.symbols.size());
    s_.nodes.resize(s_.symbols.size());
    s_.entries.clear();
    s_.urgent.clear();
    if (s_.bucket.size() < model_.rank_end_) s_.bucket.resize(model_.rank_end_, -1);
    for (int32_t i = 0; i < count; ++i) {
      At(i) = {s_.symbols[static_cast<size_t>(i)], i - 1, i + 1 < count ? i + 1 : -1, kNoRank, -1};
      if (i > 0) Enter(i - 1);
    }
  }

  // Looks the pair at `node` up and queues it.
  void Enter(int32_t node) {
    Node& left = At(node);
    const Pair* pair = left.next < 0 ? nullptr : model_.FindPair(left.symbol, At(left.next).symbol);
    if (pair == nullptr) {
      left.rank = kNoRank;
      return;
    }
    left.rank = pair->rank;
    left.result = pair->result;
    if (int64_t{pair->rank} <= in_work_) {
      s_.urgent.push_back(Key(pair->rank, node));
      std::push_heap(s_.urgent.begin(), s_.urgent.end(), std::greater<>());
      return;
    }
    int32_t& first = s_.bucket[pair->rank];
    if (first < 0) {
      s_.ranks.push_back(pair->rank);
      std::push_heap(s_.ranks.begin(), s_.ranks.end(), std::greater<>());
    }
    s_.entries.push_back({node, first});
    first = static_cast<int32_t>(s_.entries.size()) - 1;
  }

  void TakeBucket(uint32_t rank) {
    s_.current.clear();
    for (int32_t e = std::exchange(s_.bucket[rank], -1); e >= 0;) {
      const BucketEntry& entry = s_.entries[static_cast<size_t>(e)];
      s_.current.push_back(entry.node);
      e = entry.next;
    }
    std::reverse(s_.current.begin(), s_.current.end());
    if (!std::is_sorted(s_.current.begin(), s_.current.end())) {
      std::sort(s_.current.begin(), s_.current.end());
    }
  }

  void Merge(uint32_t rank, int32_t node) {
    Node& left = At(node);
    if (left.rank != rank) return;  // one of the two has been merged with another since
    Node& right = At(left.next);
    left.symbol = left.result;
    left.next = right.next;
    right.rank = kNoRank;
    if (left.next >= 0) At(left.next).previous = node;
    Enter(node);
    if (left.previous >= 0) Enter(left.previous);
  }

  void Store() {
    s_.symbols.clear();
    for (int32_t node = 0; node >= 0; node = At(node).next) s_.symbols.push_back(At(node).symbol);
    if (s_.nodes.capacity() > kScratchNodesKept) {
      s_.nodes = {};
      s_.entries = {};
      s_.current = {};
      s_.urgent = {};
    }
  }

  const BpeModel& model_;
  Scratch& s_;
  int64_t in_work_ = -1;
};

BpeModel::BpeModel(BpeVocabulary vocabulary, BpeOptions options)
    : vocabulary_(std::move(vocabulary)), options_(std::move(options)) {}

std::unique_ptr<const BpeModel> BpeModel::Build(BpeVocabulary vocabulary, BpeOptions options) {
  std::unique_ptr<BpeModel> model(new BpeModel(std::move(vocabulary), std::move(options)));
  for (size_t i = 0; i < model->vocabulary_.symbols.size(); ++i) {
    model->extra_symbols_.Insert(model->vocabulary_.symbols[i],
                                 model->vocabulary_.symbols_begin + static_cast<int32_t>(i));
  }
  const bool has_affix =
      !model->options_.continuing_prefix.empty() || !model->options_.end_suffix.empty();
  const auto& byte_ids = model->vocabulary_.byte_ids;
  const bool needs_unknown =
      model->options_.unknown_id &&
      std::find(byte_ids.begin(), byte_ids.end(), TokenIndex::kNone) != byte_ids.end();
  model->plain_bytes_ = model->options_.byte_level && !has_affix && !needs_unknown;
  model->BuildPairs();
  model->BuildCuts();
  model->BuildJunctions();
  model->BuildReachable();
  return model;
}

void BpeModel::BuildPairs() {
  size_t size = 16;
  while (size < vocabulary_.merges.size() * 2) size *= 2;
  pairs_.assign(size, Pair());
  pair_mask_ = size - 1;
  for (const BpeMerge& merge : vocabulary_.merges) {
    CHECK(merge.rank < kNoRank && merge.left >= 0 && merge.right >= 0);
    rank_end_ = std::max(rank_end_, merge.rank + 1);
    size_t at = HashPair(merge.left, merge.right) & pair_mask_;
    while (pairs_[at].left >= 0 &&
           (pairs_[at].left != merge.left || pairs_[at].right != merge.right)) {
      at = (at + 1) & pair_mask_;
    }
    // Of two merges of the same pair the later one counts, as in the reference library.
    pairs_[at] = {merge.left, merge.right, merge.rank, merge.result};
  }
}

void BpeModel::BuildCuts() {
  if (options_.byte_level || !options_.continuing_prefix.empty() || !options_.end_suffix.empty() ||
      vocabulary_.tokens.Find(kSpaceMark) == TokenIndex::kNone) {
    return;
  }
  std::vector<char32_t> joined;
  for (size_t i = 0; i < vocabulary_.tokens.size(); ++i) {
    const std::string_view token = vocabulary_.tokens.key(i);
    char32_t before = 0;
    for (size_t at = 0; at < token.size();) {
      const Utf8Char c = DecodeUtf8(token.substr(at));
      if (at > 0 && c.code == kSpaceMarkCode) joined.push_back(before);
      before = c.code;
      at += c.bytes;
    }
  }
  std::sort(joined.begin(), joined.end());
  joined.erase(std::unique(joined.begin(), joined.end()), joined.end());
  joined_before_space_ = std::move(joined);
}

void BpeModel::BuildJunctions() {
  std::vector<std::string_view> bytes(static_cast<size_t>(vocabulary_.symbols_begin));
  for (size_t i = 0; i < vocabulary_.tokens.size(); ++i) {
    bytes[static_cast<size_t>(vocabulary_.tokens.id(i))] = vocabulary_.tokens.key(i);
  }
  bytes.insert(bytes.end(), vocabulary_.symbols.begin(), vocabulary_.symbols.end());
  for (const BpeMerge& merge : vocabulary_.merges) {
    const std::string_view left = bytes[static_cast<size_t>(merge.left)];
    const std::string_view right = bytes[static_cast<size_t>(merge.right)];
    // Without text: a token that is no symbol of a text, or one that stands for what has no symbol,
    // around which EncodeCharacters does not cut.
    if (left.empty() || right.empty()) continue;
    junctions_.set(Junction(left.back(), right.front()));
  }
}

void BpeModel::BuildReachable() {
  reachable_.assign(static_cast<size_t>(vocabulary_.symbols_begin), false);
  std::vector<TokenId> ids;
  for (size_t i = 0; i < vocabulary_.tokens.size(); ++i) {
    ids.clear();
    EncodeSymbols(vocabulary_.tokens.key(i), ids);
    const TokenId id = vocabulary_.tokens.id(i);
    reachable_[static_cast<size_t>(id)] = ids.size() == 1 && ids[0] == id;
  }
}

const BpeModel::Pair* BpeModel::FindPair(int32_t left, int32_t right) const {
  for (size_t at = HashPair(left, right) & pair_mask_;; at = (at + 1) & pair_mask_) {
    const Pair& pair = pairs_[at];
    if (pair.left == left && pair.right == right) return &pair;
    if (pair.left < 0) return nullptr;
  }
}

void BpeModel::Encode(std::string_view piece, std::vector<TokenId>& ids) const {
  if (piece.empty()) return;
  if (options_.ignore_merges) {
    const TokenId whole = vocabulary_.tokens.Find(piece);
    if (whole != TokenIndex::kNone) {
      ids.push_back(whole);
      return;
    }
  }
  if (!joined_before_space_) return EncodeWord(piece, ids);
  size_t begin = 0;
  for (size_t at = piece.find(kSpaceMark, 1); at != std::string_view::npos;
       at = piece.find(kSpaceMark, at + 1)) {
    size_t before = at - 1;
    while (before > begin && (static_cast<uint8_t>(piece[before]) & 0xC0) == 0x80) --before;
    const char32_t code = DecodeUtf8(piece.substr(before)).code;
    if (std::binary_search(joined_before_space_->begin(), joined_before_space_->end(), code)) {
      continue;
    }
    EncodeWord(piece.substr(begin, at - begin), ids);
    begin = at;
  }
  EncodeWord(piece.substr(begin), ids);
}

void BpeModel::EncodeWord(std::string_view word, std::vector<TokenId>& ids) const {
  const TokenId whole = vocabulary_.tokens.Find(word);
  if (whole != TokenIndex::kNone && reachable_[static_cast<size_t>(whole)]) {
    ids.push_back(whole);
    return;
  }
  EncodeSymbols(word, ids);
}

void BpeModel::EncodeSymbols(std::string_view word, std::vector<TokenId>& ids) const {
  if (plain_bytes_) return EncodeBytes(word, ids);
  EncodeCharacters(word, ids);
}

// Cuts the word where nothing can be joined, and merges what lies between.
void BpeModel::EncodeBytes(std::string_view word, std::vector<TokenId>& ids) const {
  std::vector<int32_t>& symbols = ThreadScratch().symbols;
  symbols.clear();
  char last = 0;
  for (const char c : word) {
    const TokenId id = vocabulary_.byte_ids[static_cast<uint8_t>(c)];
    if (id == TokenIndex::kNone) continue;
    if (!symbols.empty() && !junctions_.test(Junction(last, c))) {
      MergeAndEmit(ids);
      symbols.clear();
    }
    symbols.push_back(id);
    last = c;
  }
  MergeAndEmit(ids);
}

// Of the thread's symbols.
void BpeModel::MergeAndEmit(std::vector<TokenId>& ids) const {
  Scratch& scratch = ThreadScratch();
  if (scratch.symbols.size() <= kShortSymbolsMax) {
    MergeShort(scratch.symbols);
  } else if (!MergeRuns(scratch.symbols)) {
    LongWord(*this, scratch).Run();
  }
  Emit(scratch.symbols, ids);
  if (scratch.symbols.capacity() > kScratchNodesKept) scratch.symbols = {};
}

void BpeModel::EncodeCharacters(std::string_view word, std::vector<TokenId>& ids) const {
  std::vector<int32_t>& symbols = ThreadScratch().symbols;
  symbols.clear();
  bool after_unknown = false;
  std::optional<char> last;  // byte of the symbol before, where that is known
  std::string decorated;
  for (size_t at = 0; at < word.size();) {
    const uint32_t bytes = options_.byte_level ? 1 : DecodeUtf8(word.substr(at)).bytes;
    std::string_view character = word.substr(at, bytes);
    if (at > 0 && !options_.continuing_prefix.empty()) {
      decorated.assign(options_.continuing_prefix).append(character);
      character = decorated;
    }
    at += bytes;
    if (at == word.size() && !options_.end_suffix.empty()) {
      decorated = std::string(character) + options_.end_suffix;
      character = decorated;
    }
    TokenId id = vocabulary_.tokens.Find(character);
    if (id == TokenIndex::kNone) id = extra_symbols_.Find(character);
    if (id != TokenIndex::kNone) {
      if (last && !junctions_.test(Junction(*last, character.front()))) {
        MergeAndEmit(ids);
        symbols.clear();
      }
      symbols.push_back(id);
      last = character.back();
      after_unknown = false;
      continue;
    }
    if (AppendByteFallback(character, symbols)) {
      after_unknown = false;
    } else if (options_.unknown_id && !(after_unknown && options_.fuse_unknown)) {
      symbols.push_back(*options_.unknown_id);
      after_unknown = true;
    } else {
      continue;  // dropped
    }
    last.reset();
  }
  MergeAndEmit(ids);
}

// False if some byte of the character has no token.
bool BpeModel::AppendByteFallback(std::string_view character, std::vector<int32_t>& symbols) const {
  if (options_.byte_level) return false;
  for (const char c : character) {
    if (vocabulary_.byte_ids[static_cast<uint8_t>(c)] == TokenIndex::kNone) return false;
  }
  for (const char c : character) {
    symbols.push_back(vocabulary_.byte_ids[static_cast<uint8_t>(c)]);
  }
  return true;
}

// Quadratic in the number of symbols, which is small.
void BpeModel::MergeShort(std::vector<int32_t>& symbols) const {
  std::array<const Pair*, kShortSymbolsMax> pairs;  // of symbol i and the next
  size_t count = symbols.size();
  for (size_t i = 0; i + 1 < count; ++i) pairs[i] = FindPair(symbols[i], symbols[i + 1]);
  while (count > 1) {
    uint32_t best_rank = kNoRank;
    size_t best = 0;
    for (size_t i = 0; i + 1 < count; ++i) {
      if (pairs[i] != nullptr && pairs[i]->rank < best_rank) {
        best_rank = pairs[i]->rank;
        best = i;
      }
    }
    if (best_rank == kNoRank) break;
    symbols[best] = pairs[best]->result;
    --count;
    for (size_t i = best + 1; i < count; ++i) symbols[i] = symbols[i + 1];
    for (size_t i = best + 1; i + 1 < count; ++i) pairs[i] = pairs[i + 1];
    if (best + 1 < count) pairs[best] = FindPair(symbols[best], symbols[best + 1]);
    if (best > 0) pairs[best - 1] = FindPair(symbols[best - 1], symbols[best]);
  }
  symbols.resize(count);
}

void BpeModel::Emit(std::span<const int32_t> symbols, std::vector<TokenId>& ids) const {
  for (const int32_t symbol : symbols) {
    if (symbol < vocabulary_.symbols_begin) {
      ids.push_back(symbol);
      continue;
    }
    // A character without a token that merged with nothing.
    const auto extra = static_cast<size_t>(symbol - vocabulary_.symbols_begin);
    const std::string& character = vocabulary_.symbols[extra];
    const bool has_bytes = std::all_of(character.begin(), character.end(), [this](char c) {
      return vocabulary_.byte_ids[static_cast<uint8_t>(c)] != TokenIndex::kNone;
    });
    if (has_bytes) {
      for (const char c : character) ids.push_back(vocabulary_.byte_ids[static_cast<uint8_t>(c)]);
    } else if (options_.unknown_id) {
      ids.push_back(*options_.unknown_id);
    }
  }
}

}  // namespace polysil
