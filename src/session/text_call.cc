#include "session/text_call.h"

#include <utility>

#include "absl/strings/cord.h"

namespace polysil {
namespace {

constexpr char kFieldUrl[] = "polysil/field";
constexpr char kReasonUrl[] = "polysil/reason";

Status WithPayload(Status status, const char* url, std::string_view value) {
  status.SetPayload(url, absl::Cord(absl::string_view(value.data(), value.size())));
  return status;
}

std::string PayloadOf(const Status& status, const char* url) {
  const auto payload = status.GetPayload(url);
  return payload.has_value() ? std::string(*payload) : std::string();
}

}  // namespace

Status WithField(Status status, std::string_view field) {
  return WithPayload(std::move(status), kFieldUrl, field);
}

std::string FieldOf(const Status& status) {
  return PayloadOf(status, kFieldUrl);
}

Status WithReason(Status status, std::string_view reason) {
  return WithPayload(std::move(status), kReasonUrl, reason);
}

std::string ReasonOf(const Status& status) {
  return PayloadOf(status, kReasonUrl);
}

}  // namespace polysil
