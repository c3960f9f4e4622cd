// Normalizer: rewrites a text before it is split, as a tokenizer file asks. Immutable, thread-safe.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "polysil/base/status.h"
#include "text/regex.h"

namespace polysil {

class Normalizer {
 public:
  virtual ~Normalizer() = default;
  virtual std::string Normalize(std::string text) const = 0;
};

enum class UnicodeForm { kNfc, kNfd, kNfkc, kNfkd };
// Ill-formed bytes pass unchanged through each of these.
std::unique_ptr<Normalizer> NormalizeUnicode(UnicodeForm form);
std::unique_ptr<Normalizer> LowerCase();
// Drops combining marks (category M); only after a decomposition does that strip accents.
std::unique_ptr<Normalizer> StripMarks();
std::unique_ptr<Normalizer> StripWhiteSpace(bool left, bool right);
// In front of a text that is not empty.
std::unique_ptr<Normalizer> Prepend(std::string prefix);
std::unique_ptr<Normalizer> ReplaceText(std::string pattern, std::string content);
std::unique_ptr<Normalizer> ReplaceRegex(Regex pattern, std::string content);
std::unique_ptr<Normalizer> BytesAsCharacters();
std::unique_ptr<Normalizer> NormalizerSequence(std::vector<std::unique_ptr<Normalizer>> parts);
// SentencePiece's older cleaning: control characters dropped, other white space made a space.
std::unique_ptr<Normalizer> CleanNmt();

struct BertOptions {
  bool clean_text = true;
  bool chinese_characters = true;
  bool strip_accents = false;
  bool lower_case = true;
};
std::unique_ptr<Normalizer> NormalizeBert(const BertOptions& options);

// SentencePiece's compiled map of characters (a double-array trie and the replacements).
StatusOr<std::unique_ptr<Normalizer>> PrecompiledMap(std::string_view bytes);

}  // namespace polysil
