#include "text/pre_tokenizer.h"

#include <span>

#include "polysil/base/check.h"
#include "text/byte_alphabet.h"
#include "text/codepoint_set.h"
#include "text/utf8.h"

namespace polysil {
namespace {

// Runs the steps from `index` on, depth first.
class StepRunner final : public PieceSink {
 public:
  StepRunner(std::span<const std::unique_ptr<SplitStep>> steps, PieceSink& last)
      : steps_(steps), last_(last) {}

  void Piece(std::string_view piece, bool at_start) override {
    if (piece.empty()) return;
    if (steps_.empty()) return last_.Piece(piece, at_start);
    StepRunner next(steps_.subspan(1), last_);
    steps_[0]->Split(piece, at_start, next);
  }

 private:
  std::span<const std::unique_ptr<SplitStep>> steps_;
  PieceSink& last_;
};

// Applies a SplitBehavior to a text whose matches come one after the other.
class BehaviorSink {
 public:
  BehaviorSink(std::string_view text, bool at_start, SplitBehavior behavior, bool invert,
               PieceSink& sink)
      : text_(text), at_start_(at_start), behavior_(behavior), invert_(invert), sink_(sink) {}

  void Match(size_t begin, size_t end) {
    if (begin > done_) Segment(done_, begin, invert_);
    Segment(begin, end, !invert_);
    done_ = end;
  }
  void Finish() {
    if (done_ < text_.size()) Segment(done_, text_.size(), invert_);
    if (held_) Emit(held_begin_, held_end_);
  }

 private:
  void Segment(size_t begin, size_t end, bool is_match) {
    switch (behavior_) {
      case SplitBehavior::kRemoved:
        if (!is_match) Emit(begin, end);
        return;
      case SplitBehavior::kIsolated:
        Emit(begin, end);
        return;
      case SplitBehavior::kContiguous:
        return Hold(begin, end, is_match, held_ && is_match == held_match_);
      case SplitBehavior::kMergedWithPrevious:
        return Hold(begin, end, is_match, held_ && is_match && !held_match_);
      case SplitBehavior::kMergedWithNext:
        return Hold(begin, end, is_match, held_ && held_match_ && !is_match);
    }
  }
  void Hold(size_t begin, size_t end, bool is_match, bool join) {
    if (join) {
      held_end_ = end;
    } else {
      if (held_) Emit(held_begin_, held_end_);
      held_begin_ = begin;
      held_end_ = end;
    }
    held_ = true;
    held_match_ = is_match;
  }
  void Emit(size_t begin, size_t end) {
    sink_.Piece(text_.substr(begin, end - begin), at_start_ && begin == 0);
  }

  const std::string_view text_;
  const bool at_start_;
  const SplitBehavior behavior_;
  const bool invert_;
  PieceSink& sink_;
  size_t done_ = 0;
  bool held_ = false;        // [held_begin_, held_end_) may still grow
  bool held_match_ = false;  // whether its last segment is a match
  size_t held_begin_ = 0;
  size_t held_end_ = 0;
};

class RegexStep final : public SplitStep {
 public:
  RegexStep(Regex regex, SplitBehavior behavior, bool invert)
      : regex_(std::move(regex)), behavior_(behavior), invert_(invert) {}
  void Split(std::string_view text, bool at_start, PieceSink& sink) const override {
    BehaviorSink pieces(text, at_start, behavior_, invert_, sink);
    Regex::Search search(regex_, text);
    while (const auto match = search.Next()) pieces.Match(match->first, match->second);
    pieces.Finish();
  }

 private:
  const Regex regex_;
  const SplitBehavior behavior_;
  const bool invert_;
};

class TextStep final : public SplitStep {
 public:
  TextStep(std::string text, SplitBehavior behavior, bool invert)
      : text_(std::move(text)), behavior_(behavior), invert_(invert) {}
  void Split(std::string_view text, bool at_start, PieceSink& sink) const override {
    BehaviorSink pieces(text, at_start, behavior_, invert_, sink);
    for (size_t at = text.find(text_); at != std::string_view::npos;
         at = text.find(text_, at + text_.size())) {
      pieces.Match(at, at + text_.size());
    }
    pieces.Finish();
  }

 private:
  const std::string text_;
  const SplitBehavior behavior_;
  const bool invert_;
};

class DigitGroupStep final : public SplitStep {
 public:
  explicit DigitGroupStep(DigitGroups kind) : kind_(kind) {}

  void Split(std::string_view text, bool at_start, PieceSink& sink) const override {
    BehaviorSink pieces(text, at_start, SplitBehavior::kIsolated, false, sink);
    std::vector<size_t> starts;  // of the digits of one run
    size_t at = 0;
    while (at < text.size()) {
      starts.clear();
      Utf8Char next = DecodeUtf8(text.substr(at));
      while (at < text.size() && IsDigit(next.code)) {
        starts.push_back(at);
        at += next.bytes;
        if (at < text.size()) next = DecodeUtf8(text.substr(at));
      }
      if (!starts.empty()) {
        const bool word_goes_on = at < text.size() && IsWordCharacter(next.code);
        if (kind_ != DigitGroups::kDigitsAtWordEnd || !word_goes_on) Group(starts, at, pieces);
        continue;
      }
      at += next.bytes;
    }
    pieces.Finish();
  }

 private:
  bool IsDigit(char32_t code) const {
    return kind_ == DigitGroups::kNumbers ? IsNumber(code) : DecimalDigits().Contains(code);
  }
  void Group(const std::vector<size_t>& starts, size_t end, BehaviorSink& pieces) const {
    const size_t first = starts.size() % 3;
    const auto start_of = [&](size_t i) { return i < starts.size() ? starts[i] : end; };
    if (first != 0 && kind_ != DigitGroups::kDigits) pieces.Match(starts[0], start_of(first));
    for (size_t i = first; i < starts.size(); i += 3) {
      // superbpe only cuts in front of whole groups, it does not take them out.
      pieces.Match(starts[i], kind_ == DigitGroups::kDigits ? starts[i] : start_of(i + 3));
    }
  }

  const DigitGroups kind_;
};

class PrefixSpaceStep final : public SplitStep {
 public:
  void Split(std::string_view text, bool at_start, PieceSink& sink) const override {
    if (text.starts_with(' ')) return sink.Piece(text, at_start);
    sink.Piece(" " + std::string(text), at_start);
  }
};

class MetaspaceStep final : public SplitStep {
 public:
  MetaspaceStep(std::string mark, MarkInFront in_front, bool split)
      : mark_(std::move(mark)), in_front_(in_front), split_(split) {}

  void Split(std::string_view text, bool at_start, PieceSink& sink) const override {
    const bool in_front =
        in_front_ == MarkInFront::kAlways || (in_front_ == MarkInFront::kFirst && at_start);
    std::string marked;
    if (in_front && !text.starts_with(mark_) && !text.starts_with(' ')) marked = mark_;
    for (const char c : text) {
      if (c == ' ') {
        marked += mark_;
      } else {
        marked += c;
      }
    }
    if (!split_) return sink.Piece(marked, at_start);
    BehaviorSink pieces(marked, at_start, SplitBehavior::kMergedWithNext, false, sink);
    for (size_t at = marked.find(mark_); at != std::string::npos;
         at = marked.find(mark_, at + mark_.size())) {
      pieces.Match(at, at + mark_.size());
    }
    pieces.Finish();
  }

 private:
  const std::string mark_;
  const MarkInFront in_front_;
  const bool split_;
};

class BytesToCharactersStep final : public SplitStep {
 public:
  void Split(std::string_view text, bool at_start, PieceSink& sink) const override {
    std::string spelled;
    for (const char c : text) AppendUtf8(CharacterOfByte(static_cast<uint8_t>(c)), spelled);
    sink.Piece(spelled, at_start);
  }
};

class CharactersToBytesStep final : public SplitStep {
 public:
  void Split(std::string_view text, bool at_start, PieceSink& sink) const override {
    std::string bytes;
    for (size_t at = 0; at < text.size();) {
      const Utf8Char c = DecodeUtf8(text.substr(at));
      const auto byte = ByteOfCharacter(c.code);
      // A character that a later step brought in has no byte; it stays as it is.
      if (byte) {
        bytes.push_back(static_cast<char>(*byte));
      } else {
        bytes.append(text.substr(at, c.bytes));
      }
      at += c.bytes;
    }
    sink.Piece(bytes, at_start);
  }
};

}  // namespace

void PreTokenizer::Split(std::string_view text, bool at_start, PieceSink& sink) const {
  StepRunner(steps_, sink).Piece(text, at_start);
}

std::unique_ptr<SplitStep> SplitByRegex(Regex regex, SplitBehavior behavior, bool invert) {
  return std::make_unique<RegexStep>(std::move(regex), behavior, invert);
}

std::unique_ptr<SplitStep> SplitByText(std::string text, SplitBehavior behavior, bool invert) {
  CHECK(!text.empty());
  return std::make_unique<TextStep>(std::move(text), behavior, invert);
}

std::unique_ptr<SplitStep> SplitDigitGroups(DigitGroups kind) {
  return std::make_unique<DigitGroupStep>(kind);
}

std::unique_ptr<SplitStep> PrefixSpace() {
  return std::make_unique<PrefixSpaceStep>();
}

std::unique_ptr<SplitStep> Metaspace(std::string mark, MarkInFront in_front, bool split) {
  CHECK(!mark.empty());
  return std::make_unique<MetaspaceStep>(std::move(mark), in_front, split);
}

std::unique_ptr<SplitStep> BytesToCharacters() {
  return std::make_unique<BytesToCharactersStep>();
}
std::unique_ptr<SplitStep> CharactersToBytes() {
  return std::make_unique<CharactersToBytesStep>();
}

StatusOr<Regex> Gpt2Regex() {
  return Regex::Compile(
      R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)");
}

}  // namespace polysil
