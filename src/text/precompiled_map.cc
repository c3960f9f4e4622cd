// SentencePiece's compiled character map: a double-array trie (Darts) from UTF-8 sequences to
// replacements. The bytes come from a file, so every index is checked.
#include <utf8proc.h>

#include <cstring>
#include <optional>

#include "text/normalizer.h"
#include "text/utf8.h"

namespace polysil {
namespace {

// Longer clusters are looked up character by character.
constexpr size_t kClusterBytesMax = 5;

class PrecompiledNormalizer final : public Normalizer {
 public:
  PrecompiledNormalizer(std::vector<uint32_t> units, std::string replacements)
      : units_(std::move(units)), replacements_(std::move(replacements)) {}

  std::string Normalize(std::string text) const override {
    std::string out;
    size_t cluster = 0;
    int32_t break_state = 0;
    for (size_t at = 0; at < text.size();) {
      const Utf8Char c = DecodeUtf8(std::string_view(text).substr(at));
      at += c.bytes;
      const bool last = at == text.size();
      if (!last) {
        const Utf8Char next = DecodeUtf8(std::string_view(text).substr(at));
        if (!utf8proc_grapheme_break_stateful(static_cast<int32_t>(c.code),
                                              static_cast<int32_t>(next.code), &break_state)) {
          continue;
        }
      }
      AppendCluster(std::string_view(text).substr(cluster, at - cluster), out);
      cluster = at;
    }
    return out;
  }

 private:
  void AppendCluster(std::string_view cluster, std::string& out) const {
    if (cluster.size() <= kClusterBytesMax) {
      if (const auto replacement = Find(cluster)) {
        out += *replacement;
        return;
      }
    }
    for (size_t at = 0; at < cluster.size();) {
      const Utf8Char c = DecodeUtf8(cluster.substr(at));
      const std::string_view bytes = cluster.substr(at, c.bytes);
      at += c.bytes;
      const auto replacement = c.well_formed ? Find(bytes) : std::nullopt;
      out += replacement ? *replacement : bytes;
    }
  }

  // The replacement of the shortest key that `text` begins with, as the reference library does.
  std::optional<std::string_view> Find(std::string_view text) const {
    if (units_.empty()) return std::nullopt;
    size_t at = OffsetOf(units_[0]);
    for (const char c : text) {
      const auto byte = static_cast<uint8_t>(c);
      if (byte == 0) return std::nullopt;
      at ^= byte;
      if (at >= units_.size()) return std::nullopt;
      const uint32_t unit = units_[at];
      if ((unit & 0x800000FF) != byte) return std::nullopt;
      at ^= OffsetOf(unit);
      if (at >= units_.size()) return std::nullopt;
      if ((unit >> 8) & 1) {
        const size_t begin = units_[at] & 0x7FFFFFFF;
        if (begin > replacements_.size()) return std::nullopt;
        const std::string_view rest = std::string_view(replacements_).substr(begin);
        return rest.substr(0, rest.find('\0'));
      }
    }
    return std::nullopt;
  }

  static size_t OffsetOf(uint32_t unit) { return size_t{unit >> 10} << ((unit & 0x200) >> 6); }

  const std::vector<uint32_t> units_;
  const std::string replacements_;
};

}  // namespace

StatusOr<std::unique_ptr<Normalizer>> PrecompiledMap(std::string_view bytes) {
  uint32_t trie_bytes = 0;
  if (bytes.size() < sizeof(trie_bytes)) {
    return InvalidArgument("the compiled character map has {} bytes, its header 4", bytes.size());
  }
  std::memcpy(&trie_bytes, bytes.data(), sizeof(trie_bytes));
  bytes.remove_prefix(sizeof(trie_bytes));
  if (trie_bytes > bytes.size() || trie_bytes % sizeof(uint32_t) != 0) {
    return InvalidArgument("the compiled character map has a trie of {} bytes in {}", trie_bytes,
                           bytes.size());
  }
  std::vector<uint32_t> units(trie_bytes / sizeof(uint32_t));
  if (trie_bytes > 0) std::memcpy(units.data(), bytes.data(), trie_bytes);
  return std::unique_ptr<Normalizer>(std::make_unique<PrecompiledNormalizer>(
      std::move(units), std::string(bytes.substr(trie_bytes))));
}

}  // namespace polysil
