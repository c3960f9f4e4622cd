#include "gateway/error_reply.h"

#include "gateway/json_writer.h"
#include "session/text_call.h"

namespace polysil {
namespace {

// OpenAI's words for kinds of errors.
std::string_view TypeOf(int http_status) {
  if (http_status == 429) return "rate_limit_error";
  if (http_status == 503) return "service_unavailable_error";
  if (http_status == 504) return "timeout_error";
  if (http_status >= 500) return "server_error";
  return "invalid_request_error";
}

void WriteStringOrNull(JsonWriter& json, std::string_view text) {
  if (text.empty()) {
    json.Null();
  } else {
    json.String(text);
  }
}

std::string ErrorObject(int http_status, std::string_view message, std::string_view param,
                        std::string_view code) {
  std::string out;
  JsonWriter json(out);
  json.BeginObject().Key("error").BeginObject();
  json.Key("message").String(message);
  json.Key("type").String(TypeOf(http_status));
  json.Key("param");
  WriteStringOrNull(json, param);
  json.Key("code");
  WriteStringOrNull(json, code);
  json.EndObject().EndObject();
  return out;
}

std::string CodeOf(const Status& status) {
  std::string reason = ReasonOf(status);
  if (!reason.empty()) return reason;
  if (status.code() == StatusCode::kResourceExhausted) return "overloaded";
  return {};
}

}  // namespace

int HttpStatusOf(const Status& status) {
  switch (status.code()) {
    case StatusCode::kOk:
      return 200;
    case StatusCode::kInvalidArgument:
    case StatusCode::kFailedPrecondition:
    case StatusCode::kOutOfRange:
      return 400;
    case StatusCode::kUnauthenticated:
      return 401;
    case StatusCode::kPermissionDenied:
      return 403;
    case StatusCode::kNotFound:
      return 404;
    case StatusCode::kAlreadyExists:
    case StatusCode::kAborted:
      return 409;
    case StatusCode::kResourceExhausted:
      return 429;
    case StatusCode::kUnimplemented:
      return 501;
    case StatusCode::kUnavailable:
      return 503;
    case StatusCode::kDeadlineExceeded:
      return 504;
    default:
      return 500;
  }
}

std::string ErrorJson(const Status& status) {
  return ErrorObject(HttpStatusOf(status), Message(status), FieldOf(status), CodeOf(status));
}

HttpReply ErrorReply(const Status& status, std::optional<int32_t> retry_after_seconds) {
  HttpReply reply{.status = HttpStatusOf(status), .body = ErrorJson(status)};
  if (retry_after_seconds) {
    reply.headers.emplace_back("Retry-After", std::to_string(*retry_after_seconds));
  }
  return reply;
}

HttpReply ProtocolErrorReply(int http_status, std::string_view message, std::string_view code) {
  return HttpReply{.status = http_status, .body = ErrorObject(http_status, message, {}, code)};
}

}  // namespace polysil
