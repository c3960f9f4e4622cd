// TextSlot: where the faces find the text service: empty while the model loads, filled once, never
// emptied again. So a face can listen, and say that it is not ready, before there is anything to
// serve. Owned by the daemon; outlives the faces. Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>

#include "polysil/base/status.h"
#include "polysil/engine/engine.h"
#include "session/text_service.h"

namespace polysil {

class TextSlot final {
 public:
  TextSlot() = default;
  TextSlot(const TextSlot&) = delete;
  TextSlot& operator=(const TextSlot&) = delete;

  // Once. `service` outlives all use by the faces.
  void Fill(TextService& service);
  // Null while it is empty.
  TextService* get() const { return service_.load(std::memory_order_acquire); }
  // The service; UNAVAILABLE while it is empty.
  StatusOr<TextService*> Find() const;

  // Of the service; while it is empty, that the model is being loaded.
  EngineReadiness Readiness() const;
  // See TextService.
  std::optional<int32_t> RetryAfterSeconds(const Status& status) const;

 private:
  std::atomic<TextService*> service_ = nullptr;
};

}  // namespace polysil
