// ByteTokenizer: a small real Tokenizer for tests: one token for each byte, some control tokens and
// some pieces that only a scripted engine chooses. And a chat template to go with it.
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace polysil {

class ByteTokenizer final : public Tokenizer {
 public:
  static constexpr TokenId kBos = 256;
  static constexpr TokenId kTurnStart = 257;
  static constexpr TokenId kTurnEnd = 258;  // the end token
  static constexpr TokenId kStopBang = 259;
  static constexpr TokenId kADotB = 260;
  static constexpr TokenId kDots = 261;
  static constexpr TokenId kHello = 262;
  static constexpr TokenId kWorld = 263;
  static constexpr int32_t kVocabSize = 264;

  explicit ByteTokenizer(bool adds_bos = false) : adds_bos_(adds_bos) {
    for (int byte = 0; byte < 256; ++byte) tokens_.emplace_back(1, static_cast<char>(byte));
    for (const char* piece :
         {"<s>", "<|im_start|>", "<|im_end|>", "stop!", " a.b", "...", "Hello", " world"}) {
      tokens_.emplace_back(piece);
    }
  }

  std::vector<TokenId> Encode(std::string_view text, const EncodeOptions& options) const override {
    std::vector<TokenId> ids;
    if (options.add_bos && adds_bos_) ids.push_back(kBos);
    Append(text, options.parse_control_tokens, ids);
    return ids;
  }

  std::vector<TokenId> EncodeRendered(std::string_view text, std::span<const ByteSpan> untrusted,
                                      bool add_bos) const override {
    std::vector<TokenId> ids;
    if (add_bos && adds_bos_) ids.push_back(kBos);
    size_t begin = 0;
    for (const ByteSpan& span : untrusted) {
      Append(text.substr(begin, span.begin - begin), true, ids);
      Append(text.substr(span.begin, span.end - span.begin), false, ids);
      begin = span.end;
    }
    Append(text.substr(begin), true, ids);
    return ids;
  }

  std::string Decode(std::span<const TokenId> ids, bool skip_control) const override {
    std::string text;
    for (const TokenId id : ids) {
      if (!(skip_control && IsControl(id))) text += TokenBytes(id);
    }
    return text;
  }

  std::string_view TokenBytes(TokenId id) const override {
    if (id < 0 || id >= kVocabSize) return {};
    return tokens_[static_cast<size_t>(id)];
  }
  bool strips_leading_space() const override { return false; }
  int32_t vocab_size() const override { return kVocabSize; }
  bool IsControl(TokenId id) const override { return id >= kBos && id <= kTurnEnd; }
  std::optional<TokenId> Find(std::string_view token) const override {
    const auto it = std::find(tokens_.begin(), tokens_.end(), token);
    if (it == tokens_.end()) return std::nullopt;
    return static_cast<TokenId>(it - tokens_.begin());
  }
  std::optional<TokenId> bos_id() const override { return kBos; }
  std::optional<TokenId> eos_id() const override { return kTurnEnd; }
  std::span<const TokenId> end_ids() const override { return end_ids_; }
  bool adds_bos() const override { return adds_bos_; }

 private:
  void Append(std::string_view text, bool parse_control, std::vector<TokenId>& ids) const {
    for (size_t i = 0; i < text.size();) {
      TokenId control = -1;
      for (TokenId id = kBos; parse_control && id <= kTurnEnd; ++id) {
        if (text.substr(i).starts_with(TokenBytes(id))) control = id;
      }
      ids.push_back(control >= 0 ? control : static_cast<unsigned char>(text[i]));
      i += control >= 0 ? TokenBytes(control).size() : 1;
    }
  }

  std::vector<std::string> tokens_;
  std::vector<TokenId> end_ids_ = {kTurnEnd};
  const bool adds_bos_;
};

// A real template, in the manner of ChatML, that refuses a conversation which begins with a tool's
// answer, as some do.
inline std::shared_ptr<const ChatTemplate> ChatmlTemplate() {
  return ChatTemplate::Create(
             "{% if messages and messages[0].role == 'tool' %}"
             "{{ raise_exception('Conversation must not start with a tool') }}{% endif %}"
             "{% for message in messages %}"
             "{{ '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}"
             "{% endfor %}{% if tools %}[tools]{% endif %}"
             "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}",
             {})
      .value();
}

}  // namespace polysil
