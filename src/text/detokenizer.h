// Detokenizer: token ids of one sequence to UTF-8 text, piece by piece. State is bytes: a character
// that is incomplete but still possible is held back; an ill-formed one becomes U+FFFD, one for
// each maximal subpart (Unicode's recommended practice). One per sequence; not thread-safe.
#pragma once

#include <memory>
#include <string>

#include "text/tokenizer.h"

namespace polysil {

class Detokenizer final {
 public:
  // skip_control: control tokens give nothing. after_text: the sequence continues a text (a
  // prompt), so the first token keeps its leading space.
  Detokenizer(std::shared_ptr<const Tokenizer> tokenizer, bool skip_control, bool after_text);

  // The text that became certain with this id. Always valid UTF-8, perhaps empty.
  std::string Push(TokenId id);
  // What is still held back, at the end: U+FFFD for an incomplete character.
  std::string Flush();

 private:
  std::shared_ptr<const Tokenizer> tokenizer_;
  std::string pending_;
  bool skip_control_;
  bool at_start_;
};

}  // namespace polysil
