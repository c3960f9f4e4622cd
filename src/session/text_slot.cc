#include "session/text_slot.h"

#include "polysil/base/check.h"

namespace polysil {
namespace {

constexpr char kLoading[] = "the model is being loaded";
// Nobody knows how long that takes; asking costs little.
constexpr int32_t kRetryWhileLoadingSeconds = 1;

}  // namespace

void TextSlot::Fill(TextService& service) {
  CHECK(service_.exchange(&service, std::memory_order_acq_rel) == nullptr,
        "the text service is given twice");
}

StatusOr<TextService*> TextSlot::Find() const {
  if (TextService* const service = get()) return service;
  return Unavailable("the server is not ready: {}", kLoading);
}

EngineReadiness TextSlot::Readiness() const {
  if (const TextService* const service = get()) return service->Readiness();
  return {.ready = false, .reason = kLoading};
}

std::optional<int32_t> TextSlot::RetryAfterSeconds(const Status& status) const {
  if (const TextService* const service = get()) return service->RetryAfterSeconds(status);
  if (status.code() == StatusCode::kUnavailable) return kRetryWhileLoadingSeconds;
  return std::nullopt;
}

}  // namespace polysil
