// BpeModel: byte-pair encoding. Symbols start as bytes (byte-level) or characters, and the adjacent
// pair of the lowest rank, leftmost on ties, is joined until no pair has a rank. Covers merge lists
// (GPT-2 and later), ranks by token (tiktoken) and scores (SentencePiece BPE). Not the
// pre-tokenizer.
#pragma once

#include <array>
#include <bitset>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "polysil/base/ids.h"
#include "polysil/base/status.h"
#include "text/subword_model.h"
#include "text/token_index.h"

namespace polysil {

struct BpeMerge {
  int32_t left = 0;  // symbols: token ids, or extra symbols behind them (BpeVocabulary)
  int32_t right = 0;
  int32_t result = 0;  // a token id
  uint32_t rank = 0;   // lower first; equal ranks leftmost first
};

struct BpeOptions {
  bool byte_level = false;            // symbols start as bytes, else as characters
  bool ignore_merges = false;         // a piece that is a token is that token, reachable or not
  bool fuse_unknown = false;          // a run of unknown characters is one unknown token
  std::optional<TokenId> unknown_id;  // for characters without a token; none: they are dropped
  std::string continuing_prefix;      // before every symbol but the first of a piece
  std::string end_suffix;             // after the last symbol of a piece
};

struct BpeVocabulary {
  TokenIndex tokens;  // what text can become: no control, no byte tokens
  std::array<TokenId, 256>
      byte_ids;               // byte-level: the token of a byte; else byte fallback; or kNone
  int32_t symbols_begin = 0;  // above every token id
  std::vector<std::string> symbols;  // characters without a token that occur inside tokens
  std::vector<BpeMerge> merges;
};

class BpeModel final : public SubwordModel {
 public:
  // The caller vouches for the ids: merges name tokens and symbols that exist.
  static std::unique_ptr<const BpeModel> Build(BpeVocabulary vocabulary, BpeOptions options);

  void Encode(std::string_view piece, std::vector<TokenId>& ids) const override;

 private:
  struct Pair {
    int32_t left = -1;
    int32_t right = -1;
    uint32_t rank = 0;
    int32_t result = -1;
  };
  class LongWord;

  BpeModel(BpeVocabulary vocabulary, BpeOptions options);
  void BuildPairs();
  void BuildCuts();
  void BuildJunctions();
  void BuildReachable();
  const Pair* FindPair(int32_t left, int32_t right) const;
  void EncodeWord(std::string_view word, std::vector<TokenId>& ids) const;
  void EncodeSymbols(std::string_view word, std::vector<TokenId>& ids) const;
  void EncodeBytes(std::string_view word, std::vector<TokenId>& ids) const;
  void MergeAndEmit(std::vector<TokenId>& ids) const;
  void EncodeCharacters(std::string_view word, std::vector<TokenId>& ids) const;
  bool AppendByteFallback(std::string_view character, std::vector<int32_t>& symbols) const;
  void MergeShort(std::vector<int32_t>& symbols) const;
  bool MergeRuns(std::vector<int32_t>& symbols) const;
  void Emit(std::span<const int32_t> symbols, std::vector<TokenId>& ids) const;

  const BpeVocabulary vocabulary_;
  const BpeOptions options_;
  bool plain_bytes_ = false;  // a symbol is the token of a byte, nothing else
  TokenIndex extra_symbols_;  // of vocabulary_.symbols
  std::vector<Pair> pairs_;   // open addressing, at most half used
  size_t pair_mask_ = 0;
  uint32_t rank_end_ = 0;
  // Whether some merge joins a symbol that ends with the one byte to a symbol that begins with the
  // other, [last * 256 + first]. No token that is merged ever lies across another pair of bytes.
  std::bitset<65536> junctions_;
  std::vector<bool> reachable_;  // by token id: merging the token's bytes gives the token
  // No token has U+2581 behind another character, except behind these (sorted); a text can be cut
  // before every other U+2581 without changing the result. Empty optional: cut nowhere.
  std::optional<std::vector<char32_t>> joined_before_space_;
};

}  // namespace polysil
