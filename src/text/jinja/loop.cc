#include "text/jinja/loop.h"

namespace polysil::jinja {
namespace {

struct LoopMethod final : Callable {
  LoopMethod(Value of, bool is_cycle) : loop(std::move(of)), cycle(is_cycle) {}
  void Clear() override { loop = Value(); }
  bool Call(Runtime&, const Arguments& arguments, Value* result) override {
    return cycle ? loop.as<Loop>().Cycle(arguments, result)
                 : loop.as<Loop>().Changed(arguments, result);
  }
  std::string Describe() const override { return "<bound method LoopContext>"; }
  const char* PythonType() const override { return "method"; }
  Value loop;
  bool cycle;
};

}  // namespace

void Loop::Clear() {
  outer_ = Value();
  iterable_ = Value();
  iteration_ = Iteration();
  ahead_.clear();
  current_ = Value();
  before_ = Value();
  last_changed_ = Value();
}

bool Loop::Start(Value iterable) {
  iterable_ = iterable;
  return iteration_.Start(interpreter_.runtime(), std::move(iterable));
}

bool Loop::Passes(const Value& item) {
  Runtime& runtime = interpreter_.runtime();
  const Value scope(runtime.heap().New<Scope>(outer_));
  Value result;
  return interpreter_.AssignIn(statement_.target, item, scope) &&
         interpreter_.EvalIn(*statement_.condition, scope, &result) && Truth(result);
}

bool Loop::Pull(Value* item) {
  Runtime& runtime = interpreter_.runtime();
  while (iteration_.Next(runtime, item)) {
    if (statement_.condition == nullptr || Passes(*item)) return true;
    if (runtime.failed()) return false;
  }
  return false;
}

bool Loop::Peek() {
  if (!ahead_.empty()) return true;
  Value item;
  if (!Pull(&item)) return false;
  ahead_.push_back(std::move(item));
  return true;
}

bool Loop::Next(Value* item) {
  if (!ahead_.empty()) {
    *item = std::move(ahead_.front());
    ahead_.pop_front();
  } else if (!Pull(item)) {
    return false;
  }
  ++index0_;
  before_ = std::move(current_);
  current_ = *item;
  return true;
}

bool Loop::Length(int64_t* length) {
  Runtime& runtime = interpreter_.runtime();
  if (!length_ && statement_.condition == nullptr) {
    std::string error;
    length_ = jinja::Length(iterable_, &error);
  }
  if (!length_) {
    Value item;
    while (Pull(&item)) {
      ahead_.push_back(item);
      if (!runtime.Room(ahead_.size() * sizeof(Value))) return false;
    }
    if (runtime.failed()) return false;
    length_ = index0_ + 1 + static_cast<int64_t>(ahead_.size());
  }
  *length = *length_;
  return true;
}

bool Loop::Call(Runtime& runtime, const Arguments& arguments, Value* result) {
  if (!statement_.recursive) {
    return runtime.Fail("The loop must have the 'recursive' marker to be called recursively.");
  }
  ArgumentReader reader(runtime, "loop", arguments);
  const Value* iterable = reader.Required("iterable");
  return reader.Done() &&
         interpreter_.RunLoopCaptured(statement_, outer_, *iterable, depth_ + 1, result);
}

bool Loop::Attribute(Runtime& runtime, std::string_view name, Value* result) {
  int64_t length = 0;
  if (name == "index") {
    *result = Value::Int(index0_ + 1);
  } else if (name == "index0") {
    *result = Value::Int(index0_);
  } else if (name == "first") {
    *result = Value::Bool(index0_ == 0);
  } else if (name == "last") {
    *result = Value::Bool(!Peek());
  } else if (name == "length" || name == "revindex" || name == "revindex0") {
    if (!Length(&length)) return false;
    *result = Value::Int(name == "length"     ? length
                         : name == "revindex" ? length - index0_
                                              : length - index0_ - 1);
  } else if (name == "previtem") {
    *result = index0_ <= 0 ? runtime.NewUndefined("there is no previous item") : before_;
  } else if (name == "nextitem") {
    *result = Peek() ? ahead_.front() : runtime.NewUndefined("there is no next item");
  } else if (name == "depth" || name == "depth0") {
    *result = Value::Int(depth_ + (name == "depth" ? 1 : 0));
  } else if (name == "cycle" || name == "changed") {
    *result = Value(runtime.heap().New<LoopMethod>(Value(this), name == "cycle"));
  } else {
    return false;
  }
  return !runtime.failed();
}

std::string Loop::Describe() const {
  return "<LoopContext " + std::to_string(index0_ + 1) + "/" +
         std::to_string(length_.value_or(index0_ + 1 + static_cast<int64_t>(ahead_.size()))) + ">";
}

bool Loop::Cycle(const Arguments& arguments, Value* result) {
  if (arguments.positional.empty()) {
    return interpreter_.runtime().Fail("no items for cycling given");
  }
  *result = arguments.positional[static_cast<size_t>(index0_) % arguments.positional.size()];
  return true;
}

bool Loop::Changed(const Arguments& arguments, Value* result) {
  Runtime& runtime = interpreter_.runtime();
  Value now = runtime.NewList(Kind::kTuple);
  now.as<List>().items = arguments.positional;
  bool same = false;
  if (changed_once_ && !Equal(runtime, last_changed_, now, &same)) return false;
  changed_once_ = true;
  last_changed_ = std::move(now);
  *result = Value::Bool(!same);
  return true;
}

}  // namespace polysil::jinja
