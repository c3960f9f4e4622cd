#include "bench/stream_event.h"

#include <algorithm>
#include <boost/json.hpp>
#include <limits>

namespace polysil {
namespace {

namespace json = boost::json;

constexpr size_t kShownBytes = 80;

std::string_view TextField(const json::object& object, const char* name) {
  const json::value* value = object.if_contains(name);
  if (value == nullptr || !value->is_string()) return {};
  return {value->get_string().data(), value->get_string().size()};
}

const json::object* ObjectField(const json::object& object, const char* name) {
  const json::value* value = object.if_contains(name);
  return value != nullptr ? value->if_object() : nullptr;
}

// A count of a server: 0 where there is none.
int32_t CountField(const json::object& object, const char* name) {
  const json::value* value = object.if_contains(name);
  if (value == nullptr || !value->is_int64()) return 0;
  return static_cast<int32_t>(
      std::clamp<int64_t>(value->get_int64(), 0, std::numeric_limits<int32_t>::max()));
}

void ReadChoice(const json::object& choice, StreamEvent& event) {
  event.has_choice = true;
  event.finish_reason = TextField(choice, "finish_reason");
  event.text = TextField(choice, "text");
  const json::object* delta = ObjectField(choice, "delta");
  if (delta == nullptr) return;
  for (const char* name : {"reasoning_content", "reasoning", "content"}) {
    event.text += TextField(*delta, name);
  }
}

StreamUsage ReadUsage(const json::object& usage) {
  StreamUsage read = {.input_tokens = CountField(usage, "prompt_tokens"),
                      .output_tokens = CountField(usage, "completion_tokens")};
  if (const json::object* details = ObjectField(usage, "prompt_tokens_details")) {
    read.cached_tokens = CountField(*details, "cached_tokens");
  }
  return read;
}

}  // namespace

StatusOr<StreamEvent> ParseStreamEvent(std::string_view data) {
  StreamEvent event;
  if (data == "[DONE]") {
    event.done = true;
    return event;
  }
  boost::system::error_code error;
  const json::value value = json::parse(json::string_view(data.data(), data.size()), error);
  const json::object* object = error ? nullptr : value.if_object();
  if (object == nullptr) {
    return InvalidArgument("'{}' is no JSON object", data.substr(0, kShownBytes));
  }
  if (const json::value* failure = object->if_contains("error");
      failure != nullptr && !failure->is_null()) {
    const json::object* details = failure->if_object();
    event.error = details != nullptr ? std::string(TextField(*details, "message")) : std::string();
    if (event.error.empty()) event.error = json::serialize(*failure);
  }
  if (const json::value* choices = object->if_contains("choices");
      choices != nullptr && choices->is_array() && !choices->get_array().empty()) {
    const json::object* choice = choices->get_array().front().if_object();
    if (choice != nullptr) ReadChoice(*choice, event);
  }
  if (const json::object* usage = ObjectField(*object, "usage")) event.usage = ReadUsage(*usage);
  return event;
}

}  // namespace polysil
