#include "text/regex_dfa.h"

#include <algorithm>
#include <map>
#include <string>

#include "polysil/base/check.h"

namespace polysil {
namespace {

using Kind = RegexNode::Kind;

constexpr size_t kInstructionsMax = 20000;
constexpr size_t kStatesMax = 8192;
constexpr size_t kTransitionsMax = 1 << 20;
constexpr size_t kClassesMax = 255;

// One step of a Thompson automaton.
struct Instruction {
  enum class Op { kSet, kNext, kSplit, kMatch };
  Op op = Op::kMatch;
  int32_t set = -1;
  bool at_end = false;
  int32_t out = -1;
  int32_t out_second = -1;  // kSplit: tried after `out`
};

// Translates the tree, back to front: every fragment is told where to go on.
class Compiler {
 public:
  explicit Compiler(const RegexSyntax& syntax) : syntax_(syntax) {}

  StatusOr<int32_t> Compile() {
    const int32_t match = Add({.op = Instruction::Op::kMatch});
    const int32_t entry = Emit(syntax_.root, match);
    if (too_large_)
      return Unimplemented("regular expression needs over {} steps", kInstructionsMax);
    return entry;
  }
  std::vector<Instruction> TakeProgram() { return std::move(program_); }

 private:
  int32_t Add(Instruction instruction) {
    if (program_.size() >= kInstructionsMax) {
      too_large_ = true;
      return 0;
    }
    program_.push_back(instruction);
    return static_cast<int32_t>(program_.size()) - 1;
  }

  int32_t Emit(int32_t index, int32_t next) {
    if (too_large_) return 0;
    const RegexNode& node = syntax_.nodes[static_cast<size_t>(index)];
    switch (node.kind) {
      case Kind::kEmpty:
        return next;
      case Kind::kSet:
        return Add({.op = Instruction::Op::kSet, .set = node.set, .out = next});
      case Kind::kNext:
        return Add(
            {.op = Instruction::Op::kNext, .set = node.set, .at_end = node.at_end, .out = next});
      case Kind::kConcat: {
        int32_t entry = next;
        for (size_t i = node.children.size(); i-- > 0;) entry = Emit(node.children[i], entry);
        return entry;
      }
      case Kind::kAlternate: {
        int32_t entry = Emit(node.children.back(), next);
        for (size_t i = node.children.size() - 1; i-- > 0;) {
          entry = AddSplit(Emit(node.children[i], next), entry, true);
        }
        return entry;
      }
      case Kind::kRepeat:
        return EmitRepeat(node, next);
    }
    return next;
  }

  int32_t EmitRepeat(const RegexNode& node, int32_t next) {
    const int32_t child = node.children[0];
    int32_t entry = next;
    int32_t optional = node.max - node.min;
    if (node.max == RegexNode::kUnbounded) {
      const int32_t loop = AddSplit(next, next, node.greedy);
      const int32_t body = Emit(child, loop);
      if (too_large_) return 0;
      Instruction& split = program_[static_cast<size_t>(loop)];
      (node.greedy ? split.out : split.out_second) = body;
      entry = loop;
      optional = 0;
    }
    for (int32_t i = 0; i < optional && !too_large_; ++i) {
      entry = AddSplit(Emit(child, entry), next, node.greedy);
    }
    for (int32_t i = 0; i < node.min && !too_large_; ++i) entry = Emit(child, entry);
    return entry;
  }

  int32_t AddSplit(int32_t body, int32_t skip, bool body_first) {
    return Add({.op = Instruction::Op::kSplit,
                .out = body_first ? body : skip,
                .out_second = body_first ? skip : body});
  }

  const RegexSyntax& syntax_;
  std::vector<Instruction> program_;
  bool too_large_ = false;
};

// Characters that no set of the expression tells apart are one class.
struct Classes {
  struct Run {
    char32_t first;
    uint32_t id;
  };
  std::vector<Run> runs;                   // rising; each up to the next one's first
  std::vector<std::vector<bool>> members;  // [class][set]
};

Classes PartitionCharacters(const std::vector<CodepointSet>& sets) {
  std::vector<char32_t> bounds = {0};
  for (const CodepointSet& set : sets) {
    for (const auto& range : set.ranges()) {
      bounds.push_back(range.first);
      if (range.last < kCodepointMax) bounds.push_back(range.last + 1);
    }
  }
  std::sort(bounds.begin(), bounds.end());
  bounds.erase(std::unique(bounds.begin(), bounds.end()), bounds.end());
  Classes classes;
  std::map<std::vector<bool>, uint32_t> ids;
  std::vector<size_t> cursor(sets.size(), 0);
  std::vector<bool> member(sets.size());
  for (const char32_t bound : bounds) {
    for (size_t s = 0; s < sets.size(); ++s) {
      const auto& ranges = sets[s].ranges();
      while (cursor[s] < ranges.size() && ranges[cursor[s]].last < bound) ++cursor[s];
      member[s] = cursor[s] < ranges.size() && ranges[cursor[s]].first <= bound;
    }
    const auto [entry, is_new] = ids.try_emplace(member, static_cast<uint32_t>(ids.size()));
    if (is_new) classes.members.push_back(member);
    classes.runs.push_back({bound, entry->second});
  }
  return classes;
}

}  // namespace

// A state is the ordered list of the instructions that wait for the next character: kSet, kMatch
// and kNext, whose condition is settled when that character is known.
class RegexDfaBuilder {
 public:
  RegexDfaBuilder(std::vector<Instruction> program, const Classes& classes)
      : program_(std::move(program)), classes_(classes), seen_(program_.size(), 0) {}

  StatusOr<RegexDfa> Build(int32_t entry) {
    RegexDfa dfa;
    const size_t class_count = classes_.members.size();
    dfa.stride_ = static_cast<uint32_t>(class_count) + 1;
    BuildClassTable(dfa);
    StateOf({});  // kDead
    std::vector<int32_t> start;
    NewClosure();
    AddThread(entry, start);
    const uint32_t start_state = StateOf(std::move(start));
    CHECK(start_state == RegexDfa::kStart || start_state == RegexDfa::kDead);
    for (size_t state = 0; state < states_.size(); ++state) {
      if (states_.size() > kStatesMax || states_.size() * dfa.stride_ > kTransitionsMax) {
        return Unimplemented("regular expression needs over {} states", kStatesMax);
      }
      for (size_t c = 0; c <= class_count; ++c) {
        dfa.transitions_.push_back(Step(state, c, c == class_count));
      }
    }
    for (size_t c = 0; c < 128; ++c) {
      const size_t at = RegexDfa::kStart * dfa.stride_ + dfa.ascii_class_[c];
      dfa.ascii_starts_[c] = start_state != RegexDfa::kDead && dfa.transitions_[at] != 0;
    }
    return dfa;
  }

 private:
  // Most blocks lie within one run, so most are found without comparing them.
  void BuildClassTable(RegexDfa& dfa) const {
    constexpr char32_t kBlock = char32_t{1} << RegexDfa::kBlockBits;
    const auto& runs = classes_.runs;
    std::map<std::string, uint16_t> known;
    std::array<int32_t, kClassesMax> uniform;  // the block that is all of one class, or -1
    uniform.fill(-1);
    const auto add_block = [&](const std::string& block) {
      const auto [entry, is_new] = known.try_emplace(block, static_cast<uint16_t>(known.size()));
      if (is_new) dfa.blocks_.insert(dfa.blocks_.end(), block.begin(), block.end());
      return entry->second;
    };
    size_t run = 0;  // the one that holds the code point in work
    for (char32_t base = 0; base <= kCodepointMax; base += kBlock) {
      while (run + 1 < runs.size() && runs[run + 1].first <= base) ++run;
      const auto id = static_cast<char>(runs[run].id);
      if (run + 1 == runs.size() || runs[run + 1].first >= base + kBlock) {
        int32_t& block = uniform[runs[run].id];
        if (block < 0) block = add_block(std::string(kBlock, id));
        dfa.block_of_.push_back(static_cast<uint16_t>(block));
        continue;
      }
      std::string block(kBlock, id);
      for (char32_t i = 0; i < kBlock; ++i) {
        while (run + 1 < runs.size() && runs[run + 1].first <= base + i) ++run;
        block[i] = static_cast<char>(runs[run].id);
      }
      dfa.block_of_.push_back(add_block(block));
    }
    for (char32_t c = 0; c < 128; ++c) dfa.ascii_class_[c] = static_cast<uint8_t>(dfa.ClassOf(c));
  }

  void NewClosure() { ++mark_; }

  // Follows splits in order of preference. Each instruction counts once, where it is first met.
  void AddThread(int32_t entry, std::vector<int32_t>& threads) {
    stack_.assign(1, entry);
    while (!stack_.empty()) {
      const int32_t pc = stack_.back();
      stack_.pop_back();
      if (seen_[static_cast<size_t>(pc)] == mark_) continue;
      seen_[static_cast<size_t>(pc)] = mark_;
      const Instruction& instruction = program_[static_cast<size_t>(pc)];
      if (instruction.op == Instruction::Op::kSplit) {
        stack_.push_back(instruction.out_second);
        stack_.push_back(instruction.out);
      } else {
        threads.push_back(pc);
      }
    }
  }

  bool Allows(const Instruction& instruction, size_t c, bool at_end) const {
    if (at_end) return instruction.at_end;
    return classes_.members[c][static_cast<size_t>(instruction.set)];
  }

  // The waiting instructions once the next character's class is known: no kNext is left.
  std::vector<int32_t> Settle(const std::vector<int32_t>& waiting, size_t c, bool at_end) {
    std::vector<int32_t> pending(waiting.rbegin(), waiting.rend());
    std::vector<int32_t> settled;
    NewClosure();
    std::vector<int32_t> opened;
    while (!pending.empty()) {
      const int32_t pc = pending.back();
      pending.pop_back();
      const Instruction& instruction = program_[static_cast<size_t>(pc)];
      if (instruction.op != Instruction::Op::kNext) {
        settled.push_back(pc);
        continue;
      }
      if (!Allows(instruction, c, at_end)) continue;
      opened.clear();
      AddThread(instruction.out, opened);
      pending.insert(pending.end(), opened.rbegin(), opened.rend());
    }
    return settled;
  }

  uint32_t Step(size_t state, size_t c, bool at_end) {
    const std::vector<int32_t> threads = Settle(states_[state], c, at_end);
    std::vector<int32_t> next;
    uint32_t accept = 0;
    NewClosure();
    for (const int32_t pc : threads) {
      const Instruction& instruction = program_[static_cast<size_t>(pc)];
      if (instruction.op == Instruction::Op::kMatch) {
        accept = RegexDfa::kAccept;
        break;  // what is less preferred than a match is given up
      }
      if (!at_end && Allows(instruction, c, false)) AddThread(instruction.out, next);
    }
    return StateOf(std::move(next)) * 2 + accept;
  }

  uint32_t StateOf(std::vector<int32_t> threads) {
    const auto [entry, is_new] =
        state_ids_.try_emplace(std::move(threads), static_cast<uint32_t>(states_.size()));
    if (is_new) states_.push_back(entry->first);
    return entry->second;
  }

  const std::vector<Instruction> program_;
  const Classes& classes_;
  std::map<std::vector<int32_t>, uint32_t> state_ids_;
  std::vector<std::vector<int32_t>> states_;
  std::vector<uint32_t> seen_;
  uint32_t mark_ = 0;
  std::vector<int32_t> stack_;
};

StatusOr<RegexDfa> RegexDfa::Build(const RegexSyntax& syntax) {
  Compiler compiler(syntax);
  ASSIGN_OR_RETURN(const int32_t entry, compiler.Compile());
  const Classes classes = PartitionCharacters(syntax.sets);
  if (classes.members.size() > kClassesMax) {
    return Unimplemented("regular expression tells {} kinds of characters apart, at most {}",
                         classes.members.size(), kClassesMax);
  }
  return RegexDfaBuilder(compiler.TakeProgram(), classes).Build(entry);
}

namespace {
// Checkpoints lie this far apart; scans in vain of less than a few of them are just repeated.
constexpr size_t kCheckpointBytes = 64;
constexpr size_t kTrailMin = 4;
}  // namespace

// True if a scan in `state` at `at` is known to be in vain.
bool RegexDfa::Search::Checkpoint(uint32_t state, size_t at, size_t last) {
  if (memory_ == nullptr) memory_ = std::make_unique<Memory>();
  const auto& failed = memory_->failed;
  auto& trail = memory_->trail;
  if (!failed.empty() && failed.contains(at * kStatesMax + state)) return true;
  if (!trail.empty() && last != kNone && trail.back().second <= last) trail.clear();
  trail.emplace_back(state, at);
  return false;
}

// After a scan that found nothing in [in_vain_from, at).
void RegexDfa::Search::RememberFailure(size_t in_vain_from, size_t at) {
  if (at > in_vain_from + kTrailMin * kCheckpointBytes) {
    for (const auto& [state, position] : memory_->trail) {
      if (position >= in_vain_from) memory_->failed.insert(position * kStatesMax + state);
    }
  }
  memory_->trail.clear();
}

// The end of the preferred match that begins at `begin`, or kNone.
size_t RegexDfa::Search::MatchAt(size_t begin) {
  const uint32_t* const transitions = dfa_.transitions_.data();
  const size_t stride = dfa_.stride_;
  const char* const data = text_.data();
  const size_t size = text_.size();
  uint32_t state = kStart;
  size_t last = kNone;
  size_t at = begin;
  size_t checkpoint = (begin / kCheckpointBytes + 1) * kCheckpointBytes;
  while (state != kDead) {
    uint32_t c = static_cast<uint32_t>(stride) - 1;
    size_t bytes = 0;
    if (at < size) {
      const auto byte = static_cast<uint8_t>(data[at]);
      if (byte < 0x80) {
        c = dfa_.ascii_class_[byte];
        bytes = 1;
      } else {
        const Utf8Char decoded = DecodeUtf8Slow(text_.substr(at));
        c = dfa_.ClassOf(decoded.code);
        bytes = decoded.bytes;
      }
    }
    const uint32_t step = transitions[state * stride + c];
    if (step & kAccept) last = at;
    state = step >> 1;
    at += bytes;
    if (at >= checkpoint) {
      checkpoint = (at / kCheckpointBytes + 1) * kCheckpointBytes;
      if (Checkpoint(state, at, last)) break;
    }
  }
  if (memory_ != nullptr) RememberFailure(last == kNone ? begin : last + 1, at);
  return last;
}

std::optional<std::pair<size_t, size_t>> RegexDfa::Search::Next() {
  while (at_ <= text_.size()) {
    while (at_ < text_.size()) {
      const auto byte = static_cast<uint8_t>(text_[at_]);
      if (byte >= 0x80 || dfa_.ascii_starts_[byte]) break;
      ++at_;
    }
    const size_t begin = at_;
    const size_t end = MatchAt(begin);
    if (end != kNone && end > begin) {
      at_ = last_end_ = end;
      return std::pair(begin, end);
    }
    at_ += begin < text_.size() ? DecodeUtf8(text_.substr(begin)).bytes : 1;
    if (end == kNone || end == last_end_) continue;
    last_end_ = end;
    return std::pair(begin, end);
  }
  return std::nullopt;
}

}  // namespace polysil
