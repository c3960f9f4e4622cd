#include "text/jinja/runtime.h"

#include <utility>

#include "text/jinja/operations.h"

namespace polysil::jinja {

bool Runtime::Fail(std::string message) {
  if (!failed_) error_ = std::move(message);
  failed_ = true;
  return false;
}

bool Runtime::Raise(std::string message) {
  raised_ = !failed_;
  return Fail(std::move(message));
}

bool Runtime::TakeError(std::string* error) {
  if (!failed_ || exhausted_ || raised_) return false;
  *error = std::exchange(error_, {});
  failed_ = false;
  return true;
}

bool Runtime::FailUndefined(const Value& undefined) {
  return Fail(UndefinedMessage(undefined));
}

bool Runtime::FailSteps() {
  exhausted_ = true;
  return Fail("rendering takes more than " + std::to_string(steps_max_) + " steps");
}
bool Runtime::FailBytes() {
  exhausted_ = true;
  return Fail("rendering needs more than " + std::to_string(bytes_max_) + " bytes");
}
bool Runtime::FailDepth() {
  exhausted_ = true;
  return Fail("maximum recursion depth exceeded");
}

Value Runtime::NewString(Text text, bool markup) {
  const size_t bytes = sizeof(String) + text.memory();
  auto* object = heap_.New<String>(std::move(text), markup);
  heap_.Recharge(*object, bytes);
  return Value(object);
}

Value Runtime::NewGenerator(const char* type_name) {
  auto* object = heap_.New<List>(Kind::kGenerator);
  object->type_name = type_name;
  return Value(object);
}

bool Runtime::Recharge(const Value& container) {
  Object& object = *container.object();
  size_t bytes = 0;
  if (container.is(Kind::kDict) || container.is(Kind::kNamespace)) {
    // Twice: the index of a large dict.
    bytes = sizeof(Dict) + 2 * container.as<Dict>().entries.capacity() * sizeof(Dict::Entry);
  } else {
    bytes = sizeof(List) + container.as<List>().items.capacity() * sizeof(Value);
  }
  heap_.Recharge(object, bytes);
  return Reserve(0);
}

bool Callable::Attribute(Runtime&, std::string_view, Value*) {
  return false;
}

}  // namespace polysil::jinja
