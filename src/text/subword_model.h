// SubwordModel: the step from one piece of text, as a pre-tokenizer cut it, to token ids.
#pragma once

#include <string_view>
#include <vector>

#include "polysil/base/ids.h"

namespace polysil {

// Immutable, thread-safe.
class SubwordModel {
 public:
  virtual ~SubwordModel() = default;
  // Appends the ids of `piece`. Time linear in the piece. Never gives a control token.
  virtual void Encode(std::string_view piece, std::vector<TokenId>& ids) const = 0;
};

}  // namespace polysil
