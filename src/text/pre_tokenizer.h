// PreTokenizer: cuts a text into the pieces that the model encodes one by one: a list of steps,
// each splitting the pieces of the one before. Immutable, thread-safe.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "polysil/base/status.h"
#include "text/regex.h"

namespace polysil {

// Where the pieces go, in order.
class PieceSink {
 public:
  virtual ~PieceSink() = default;
  // `piece` is valid during the call only. at_start: it begins where the whole input begins.
  virtual void Piece(std::string_view piece, bool at_start) = 0;
};

class SplitStep {
 public:
  virtual ~SplitStep() = default;
  virtual void Split(std::string_view text, bool at_start, PieceSink& sink) const = 0;
};

class PreTokenizer final {
 public:
  PreTokenizer() = default;
  explicit PreTokenizer(std::vector<std::unique_ptr<SplitStep>> steps) : steps_(std::move(steps)) {}
  // Empty pieces are dropped.
  void Split(std::string_view text, bool at_start, PieceSink& sink) const;

 private:
  std::vector<std::unique_ptr<SplitStep>> steps_;
};

// What becomes of the matches of a split (names as in tokenizer.json).
enum class SplitBehavior {
  kRemoved,             // dropped
  kIsolated,            // pieces of their own
  kMergedWithPrevious,  // joined to what is before
  kMergedWithNext,      // joined to what is after
  kContiguous,          // pieces of their own, adjacent ones joined
};

// A regular expression; `invert` swaps matches and the text between them.
std::unique_ptr<SplitStep> SplitByRegex(Regex regex, SplitBehavior behavior, bool invert);
// A literal text, not empty.
std::unique_ptr<SplitStep> SplitByText(std::string text, SplitBehavior behavior, bool invert);

// Digit groups counted from the right end of a number; no regular expression does it in linear
// time.
enum class DigitGroups {
  kNumbers,          // afmoe: runs of category N become pieces of 3, the first one shorter
  kDigits,           // superbpe: a cut wherever a multiple of 3 decimal digits ends a run of them
  kDigitsAtWordEnd,  // tiny_aya: kDigits, but only where no word character follows the run
};
std::unique_ptr<SplitStep> SplitDigitGroups(DigitGroups kind);

// Puts a space before a piece that does not begin with one.
std::unique_ptr<SplitStep> PrefixSpace();

// Metaspace: spaces become `mark`, which may also be put in front.
enum class MarkInFront { kNever, kFirst, kAlways };
std::unique_ptr<SplitStep> Metaspace(std::string mark, MarkInFront in_front, bool split);

// Bytes to the printable characters that byte-level vocabularies use for them, and back.
std::unique_ptr<SplitStep> BytesToCharacters();
std::unique_ptr<SplitStep> CharactersToBytes();

// The expression of GPT-2's pre-tokenizer.
StatusOr<Regex> Gpt2Regex();

// The steps for a GGUF tokenizer.ggml.pre, with the defaults that go with it.
struct NamedPreTokenizer {
  PreTokenizer pre_tokenizer;
  bool byte_level = true;
  bool ignore_merges = false;
  bool add_bos = false;
};
// An unknown or empty name is INVALID_ARGUMENT: a guess would change ids silently.
StatusOr<NamedPreTokenizer> MakeNamedPreTokenizer(std::string_view name);

}  // namespace polysil
