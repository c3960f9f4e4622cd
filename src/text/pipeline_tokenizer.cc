#include "text/pipeline_tokenizer.h"

#include <algorithm>

namespace polysil {
namespace {

constexpr std::string_view kEndTokenNames[] = {"<|endoftext|>",
                                               "<|im_end|>",
                                               "<|end|>",
                                               "<|eot_id|>",
                                               "<|eom_id|>",
                                               "<|end_of_text|>",
                                               "<|end_of_turn|>",
                                               "<|return|>",
                                               "<|call|>",
                                               "<end_of_turn>",
                                               "<turn|>",
                                               "<end_of_utterance>",
                                               "<|END_OF_TURN_TOKEN|>",
                                               "<|eot|>",
                                               "<|eom|>",
                                               "<|EOT|>",
                                               "<EOT>",
                                               "_<EOT>",
                                               "[EOT]",
                                               "[EOS]",
                                               "[e~[",
                                               "<|user_end|>",
                                               "</s>",
                                               "<eos>",
                                               "<|role_end|>",
                                               "<|endofturn|>",
                                               "<\uFF5Cend\u2581of\u2581sentence\uFF5C>"};

// Models that end with <|return|> close every message of one answer with <|end|>.
constexpr std::string_view kReturnToken = "<|return|>";
constexpr std::string_view kMessageEndToken = "<|end|>";

class ModelSink final : public PieceSink {
 public:
  ModelSink(const SubwordModel& model, std::vector<TokenId>& ids) : model_(model), ids_(ids) {}
  void Piece(std::string_view piece, bool /*at_start*/) override { model_.Encode(piece, ids_); }

 private:
  const SubwordModel& model_;
  std::vector<TokenId>& ids_;
};

}  // namespace

bool IsMarkedEndToken(std::string_view text) {
  return (text.starts_with("<|") || text.starts_with("<\uFF5C")) &&
         std::find(std::begin(kEndTokenNames), std::end(kEndTokenNames), text) !=
             std::end(kEndTokenNames);
}

PipelineTokenizer::PipelineTokenizer(PipelineParts parts) : parts_(std::move(parts)) {
  FindEndIds();
}

void PipelineTokenizer::FindEndIds() {
  for (const auto& id : {parts_.eos_id, parts_.eot_id}) {
    if (id) end_ids_.push_back(*id);
  }
  const bool has_return = Find(kReturnToken).has_value();
  for (const std::string_view name : kEndTokenNames) {
    const auto id = Find(name);
    if (!id || !IsControl(*id) || (name == kMessageEndToken && has_return)) continue;
    end_ids_.push_back(*id);
  }
  std::sort(end_ids_.begin(), end_ids_.end());
  end_ids_.erase(std::unique(end_ids_.begin(), end_ids_.end()), end_ids_.end());
}

std::vector<TokenId> PipelineTokenizer::Encode(std::string_view text,
                                               const EncodeOptions& options) const {
  std::vector<TokenId> ids;
  if (options.add_bos) ids = parts_.prefix;
  EncodeSegments(text, {.allowed = options.parse_control_tokens}, ids);
  if (options.add_bos) ids.insert(ids.end(), parts_.suffix.begin(), parts_.suffix.end());
  return ids;
}

std::vector<TokenId> PipelineTokenizer::EncodeRendered(std::string_view text,
                                                       std::span<const ByteSpan> untrusted,
                                                       bool add_bos) const {
  std::vector<TokenId> ids;
  if (add_bos) ids = parts_.prefix;
  const size_t prefix = ids.size();
  EncodeSegments(text, {.allowed = true, .untrusted = untrusted}, ids);
  // A template that writes BOS itself does not get a second one.
  if (prefix == 1 && ids.size() > 1 && ids[1] == ids[0]) ids.erase(ids.begin());
  return ids;
}

void PipelineTokenizer::EncodeSegments(std::string_view text, const ControlRule& rule,
                                       std::vector<TokenId>& ids) const {
  std::vector<TextSegment> segments;
  parts_.added.Split(text, rule, segments);
  for (const TextSegment& segment : segments) {
    if (segment.id != TextSegment::kText) {
      ids.push_back(segment.id);
      continue;
    }
    ControlRule inner = rule;
    inner.offset += segment.begin;
    if (!parts_.normalizers.empty()) {
      // Behind a normalizer places in the text are lost, so there the rule is all or nothing.
      inner = {.allowed = rule.allowed && rule.untrusted.empty()};
    }
    EncodeText(text.substr(segment.begin, segment.end - segment.begin), segment.begin == 0, inner,
               ids);
  }
}

void PipelineTokenizer::EncodeText(std::string_view text, bool at_start, const ControlRule& rule,
                                   std::vector<TokenId>& ids) const {
  std::string normalized;
  if (!parts_.normalizers.empty()) {
    normalized = text;
    for (const auto& normalizer : parts_.normalizers) {
      normalized = normalizer->Normalize(std::move(normalized));
    }
    text = normalized;
  }
  ModelSink sink(*parts_.model, ids);
  if (parts_.added_normalized.empty()) return parts_.pre_tokenizer.Split(text, at_start, sink);
  std::vector<TextSegment> segments;
  parts_.added_normalized.Split(text, rule, segments);
  for (const TextSegment& segment : segments) {
    if (segment.id != TextSegment::kText) {
      ids.push_back(segment.id);
      continue;
    }
    parts_.pre_tokenizer.Split(text.substr(segment.begin, segment.end - segment.begin),
                               at_start && segment.begin == 0, sink);
  }
}

std::string PipelineTokenizer::Decode(std::span<const TokenId> ids, bool skip_control) const {
  std::string text;
  bool at_start = true;
  for (const TokenId id : ids) {
    if (!Has(id) || (skip_control && IsControl(id))) continue;
    const VocabularyToken& token = parts_.tokens[static_cast<size_t>(id)];
    std::string_view bytes = token.bytes;
    const bool strip = parts_.leading_strip == LeadingStrip::kSpace ||
                       (parts_.leading_strip == LeadingStrip::kSpaceMark && token.begins_with_mark);
    if (at_start && strip && bytes.starts_with(' ')) bytes.remove_prefix(1);
    at_start = false;
    text += bytes;
  }
  return text;
}

std::string_view PipelineTokenizer::TokenBytes(TokenId id) const {
  return Has(id) ? std::string_view(parts_.tokens[static_cast<size_t>(id)].bytes) : "";
}

bool PipelineTokenizer::strips_leading_space() const {
  return parts_.leading_strip != LeadingStrip::kNone;
}

int32_t PipelineTokenizer::vocab_size() const {
  return static_cast<int32_t>(parts_.tokens.size());
}

bool PipelineTokenizer::IsControl(TokenId id) const {
  return Has(id) && parts_.tokens[static_cast<size_t>(id)].control;
}

std::optional<TokenId> PipelineTokenizer::Find(std::string_view token) const {
  const TokenId id = parts_.spellings.Find(token);
  if (id == TokenIndex::kNone) return std::nullopt;
  return id;
}

bool PipelineTokenizer::adds_bos() const {
  return !parts_.prefix.empty();
}

}  // namespace polysil
