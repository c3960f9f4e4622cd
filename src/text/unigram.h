// UnigramModel: SentencePiece's unigram model: of all ways to cut a piece into tokens, the one with
// the best sum of scores (Viterbi). Not the pre-tokenizer.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "polysil/base/ids.h"
#include "polysil/base/status.h"
#include "text/subword_model.h"

namespace polysil {

struct UnigramToken {
  std::string text;
  double score = 0;
  TokenId id = 0;
};

struct UnigramVocabulary {
  std::vector<UnigramToken> tokens;   // what text can become: no control, no byte tokens
  double score_min = 0;               // over the whole vocabulary
  std::optional<TokenId> unknown_id;  // for characters without a token; none: they are dropped
  // Byte fallback; kNone without.
  std::array<TokenId, 256> byte_ids{};
  static constexpr TokenId kNone = -1;
};

class UnigramModel final : public SubwordModel {
 public:
  // A token may have this many bytes; at each byte of a text as many are looked at.
  static constexpr size_t kTokenBytesMax = 1024;

  static StatusOr<std::unique_ptr<const UnigramModel>> Build(UnigramVocabulary vocabulary);
  void Encode(std::string_view piece, std::vector<TokenId>& ids) const override;

 private:
  // An edge of the trie, packed: parent << 8 | byte, and the child. Node 0 is the root.
  struct Edge {
    uint32_t key = 0;
    uint32_t child = 0;  // 0: this slot is free
  };
  struct Node {
    int32_t token = -1;  // index into vocabulary_.tokens
  };
  // The best way to cut [0, here) ends with a token that begins at `begin`.
  struct Best {
    double score = 0;
    size_t begin = 0;
    int32_t token = -1;  // -1: an unknown character
    bool reached = false;
  };

  explicit UnigramModel(UnigramVocabulary vocabulary) : vocabulary_(std::move(vocabulary)) {}
  Status BuildTrie();
  uint32_t Child(uint32_t node, uint8_t byte) const;
  uint32_t AddChild(uint32_t node, uint8_t byte);
  void GrowEdges();
  void Relax(size_t begin, std::string_view piece, std::vector<Best>& best) const;
  void EmitUnknown(std::string_view text, std::vector<TokenId>& ids) const;

  const UnigramVocabulary vocabulary_;
  double unknown_score_ = 0;
  std::vector<Node> nodes_;
  std::vector<Edge> edges_;  // open addressing, at most half used
  size_t edge_mask_ = 0;
  size_t edges_used_ = 0;
};

}  // namespace polysil
