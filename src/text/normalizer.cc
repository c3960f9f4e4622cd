#include "text/normalizer.h"

#include "text/space_mark.h"

namespace polysil {
namespace {

class PrependNormalizer final : public Normalizer {
 public:
  explicit PrependNormalizer(std::string prefix) : prefix_(std::move(prefix)) {}
  std::string Normalize(std::string text) const override {
    return text.empty() ? text : prefix_ + text;
  }

 private:
  const std::string prefix_;
};

class ReplaceTextNormalizer final : public Normalizer {
 public:
  ReplaceTextNormalizer(std::string pattern, std::string content)
      : pattern_(std::move(pattern)), content_(std::move(content)) {}
  std::string Normalize(std::string text) const override {
    return ReplaceAll(text, pattern_, content_);
  }

 private:
  const std::string pattern_;
  const std::string content_;
};

}  // namespace

std::unique_ptr<Normalizer> Prepend(std::string prefix) {
  return std::make_unique<PrependNormalizer>(std::move(prefix));
}

std::unique_ptr<Normalizer> ReplaceText(std::string pattern, std::string content) {
  return std::make_unique<ReplaceTextNormalizer>(std::move(pattern), std::move(content));
}

}  // namespace polysil
