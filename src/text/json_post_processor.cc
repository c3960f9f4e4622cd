#include "text/json_components.h"

namespace polysil {
namespace {

using boost::json::value;

constexpr int kDepthMax = 8;
constexpr size_t kIdsMax = 64;  // before or after the text

class Builder {
 public:
  explicit Builder(int32_t vocab_size) : vocab_size_(vocab_size) {}

  Status Add(const value& post, int depth) {
    ASSIGN_OR_RETURN(const TokenizerFields fields, TokenizerFields::Of(post, "post_processor"));
    ASSIGN_OR_RETURN(const std::string type, fields.String("type"));
    if (type == "ByteLevel") return OkStatus();
    if (type == "Sequence") {
      if (depth >= kDepthMax) {
        return InvalidArgument("post-processors are nested over {} deep", depth);
      }
      ASSIGN_OR_RETURN(const boost::json::array* parts, fields.Array("processors"));
      for (const value& part : *parts) RETURN_IF_ERROR(Add(part, depth + 1));
      return OkStatus();
    }
    if (type == "TemplateProcessing") return AddTemplate(fields);
    if (type == "BertProcessing" || type == "RobertaProcessing") {
      ASSIGN_OR_RETURN(const TokenId first, PairId(fields, "cls"));
      ASSIGN_OR_RETURN(const TokenId last, PairId(fields, "sep"));
      return Surround({first}, {last});
    }
    return Unimplemented("post-processor '{}' is not supported", type);
  }

  JsonPostProcessor Take() { return std::move(result_); }

 private:
  bool Has(int64_t id) const { return id >= 0 && id < vocab_size_; }

  // What a later processor adds goes around what is there.
  Status Surround(const std::vector<TokenId>& before, const std::vector<TokenId>& after) {
    if (result_.prefix.size() + before.size() > kIdsMax ||
        result_.suffix.size() + after.size() > kIdsMax) {
      return InvalidArgument("the post-processor adds over {} tokens", kIdsMax);
    }
    result_.prefix.insert(result_.prefix.begin(), before.begin(), before.end());
    result_.suffix.insert(result_.suffix.end(), after.begin(), after.end());
    return OkStatus();
  }

  // ["<s>", 0]
  StatusOr<TokenId> PairId(const TokenizerFields& post, std::string_view name) const {
    ASSIGN_OR_RETURN(const boost::json::array* pair, post.Array(name));
    if (pair->size() != 2 || !(*pair)[1].is_int64() || !Has((*pair)[1].get_int64())) {
      return InvalidArgument("post_processor.{} is not a token and its id", name);
    }
    return static_cast<TokenId>((*pair)[1].get_int64());
  }

  Status AddTemplate(const TokenizerFields& post) {
    ASSIGN_OR_RETURN(const boost::json::array* items, post.Array("single"));
    if (items->size() > kIdsMax) {
      return InvalidArgument("post_processor.single has {} items, at most {} are accepted",
                             items->size(), kIdsMax);
    }
    std::vector<TokenId> before;
    std::vector<TokenId> after;
    bool text_seen = false;
    for (const value& item : *items) {
      ASSIGN_OR_RETURN(const TokenizerFields fields,
                       TokenizerFields::Of(item, "post_processor.single"));
      if (fields.Find("Sequence") != nullptr) {
        if (text_seen) return InvalidArgument("post_processor.single has the text twice");
        text_seen = true;
        continue;
      }
      ASSIGN_OR_RETURN(const value* special, fields.Required("SpecialToken"));
      ASSIGN_OR_RETURN(const TokenizerFields token, TokenizerFields::Of(*special, "SpecialToken"));
      ASSIGN_OR_RETURN(const std::string name, token.String("id"));
      ASSIGN_OR_RETURN(const std::vector<TokenId> ids, TemplateIds(post, name));
      std::vector<TokenId>& side = text_seen ? after : before;
      side.insert(side.end(), ids.begin(), ids.end());
    }
    if (!text_seen) return InvalidArgument("post_processor.single has no text");
    return Surround(before, after);
  }

  StatusOr<std::vector<TokenId>> TemplateIds(const TokenizerFields& post,
                                             std::string_view name) const {
    ASSIGN_OR_RETURN(const value* all, post.Required("special_tokens"));
    ASSIGN_OR_RETURN(const TokenizerFields tokens,
                     TokenizerFields::Of(*all, "post_processor.special_tokens"));
    ASSIGN_OR_RETURN(const value* entry, tokens.Required(name));
    ASSIGN_OR_RETURN(const TokenizerFields token,
                     TokenizerFields::Of(*entry, "post_processor.special_tokens"));
    ASSIGN_OR_RETURN(const boost::json::array* list, token.Array("ids"));
    std::vector<TokenId> ids;
    for (const value& id : *list) {
      if (!id.is_int64() || !Has(id.get_int64()) || ids.size() >= kIdsMax) {
        return InvalidArgument("post_processor.special_tokens has ids outside the vocabulary");
      }
      ids.push_back(static_cast<TokenId>(id.get_int64()));
    }
    return ids;
  }

  const int32_t vocab_size_;
  JsonPostProcessor result_;
};

}  // namespace

StatusOr<JsonPostProcessor> BuildPostProcessor(const value* post, int32_t vocab_size) {
  Builder builder(vocab_size);
  if (post != nullptr) RETURN_IF_ERROR(builder.Add(*post, 0));
  return builder.Take();
}

}  // namespace polysil
