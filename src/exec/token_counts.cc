#include "exec/token_counts.h"

#include <algorithm>

namespace polysil {

TokenCounts::TokenCounts(std::span<const TokenId> prompt) {
  std::vector<TokenId> ids(prompt.begin(), prompt.end());
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  entries_.reserve(ids.size());
  for (const TokenId id : ids) entries_.push_back({.id = id});
}

void TokenCounts::AddOutput(TokenId id) {
  auto place = std::lower_bound(entries_.begin(), entries_.end(), id,
                                [](const Entry& entry, TokenId value) { return entry.id < value; });
  if (place == entries_.end() || place->id != id) place = entries_.insert(place, {.id = id});
  ++place->outputs;
}

}  // namespace polysil
