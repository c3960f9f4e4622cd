#include "text/detokenizer.h"

#include <utility>

#include "text/utf8.h"

namespace polysil {
namespace {

// How many bytes at the end may still become a character. The first two bytes of a surrogate count,
// though they never will: the reference decoder waits for the third, and what a client sees of such
// bytes should not depend on the implementation.
size_t UndecidedBytes(std::string_view text) {
  if (text.empty()) return 0;
  size_t at = text.size() - 1;
  while (at > 0 && text.size() - at < 4 && (static_cast<uint8_t>(text[at]) & 0xC0) == 0x80) --at;
  const std::string_view tail = text.substr(at);
  if (tail.size() == 2 && tail[0] == '\xED') return 2;
  const Utf8Char last = DecodeUtf8(tail);
  return last.truncated && last.bytes == tail.size() ? tail.size() : 0;
}

}  // namespace

Detokenizer::Detokenizer(std::shared_ptr<const Tokenizer> tokenizer, bool skip_control,
                         bool after_text)
    : tokenizer_(std::move(tokenizer)),
      skip_control_(skip_control),
      at_start_(!after_text && tokenizer_->strips_leading_space()) {}

std::string Detokenizer::Push(TokenId id) {
  if (skip_control_ && tokenizer_->IsControl(id)) return {};
  if (id < 0 || id >= tokenizer_->vocab_size()) return {};
  if (at_start_) {
    at_start_ = false;
    pending_ += tokenizer_->Decode({&id, 1}, false);
  } else {
    pending_ += tokenizer_->TokenBytes(id);
  }
  const size_t certain = pending_.size() - UndecidedBytes(pending_);
  std::string text;
  AppendWellFormed(std::string_view(pending_).substr(0, certain), text);
  pending_.erase(0, certain);
  return text;
}

std::string Detokenizer::Flush() {
  std::string text;
  AppendWellFormed(pending_, text);
  pending_.clear();
  return text;
}

}  // namespace polysil
