// Runtime: what every operation of one rendering shares: the heap, the budget of steps, bytes and
// depth, the first error, and which dialect is spoken. One per rendering; not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <ctime>
#include <string>
#include <string_view>

#include "text/jinja/value.h"

namespace polysil::jinja {

// kReference does exactly what transformers' environment does. kServing differs where that only
// stands in a template's way: lists and dicts may be changed (append, pop, update), |from_json
// exists, |tojson takes a generator for the list it is, |safe and |escape mark nothing for
// escaping.
enum class Dialect : uint8_t { kReference, kServing };

struct RenderLimits {
  int64_t steps_max = 20'000'000;        // about half a second of evaluation
  size_t bytes_max = size_t{256} << 20;  // of all live values, the output included
  int depth_max = 1000;  // of evaluation; a macro that calls itself uses about five a level
};

class Runtime {
 public:
  Runtime(Dialect dialect, const RenderLimits& limits, const std::tm& now)
      : dialect_(dialect),
        depth_max_(limits.depth_max),
        steps_max_(limits.steps_max),
        steps_left_(limits.steps_max),
        bytes_max_(limits.bytes_max),
        now_(now) {}
  virtual ~Runtime() = default;

  // A larger input may take more. Called once, when the variables are made.
  void GrowBudget(size_t input_bytes) {
    steps_max_ += kGrowth * static_cast<int64_t>(input_bytes);
    steps_left_ += kGrowth * static_cast<int64_t>(input_bytes);
    bytes_max_ += static_cast<size_t>(kGrowth) * input_bytes;
  }

  Heap& heap() { return heap_; }
  bool serving() const { return dialect_ == Dialect::kServing; }
  const std::tm& now() const { return now_; }

  // Takes steps off the budget; false once it is used up.
  bool Step(int64_t steps = 1) {
    steps_left_ -= steps;
    return steps_left_ >= 0 || FailSteps();
  }
  // For work on every character of `bytes`, which costs more than a copy.
  bool StepScan(size_t bytes) { return Step(static_cast<int64_t>(bytes / 8)); }
  // To be asked before `bytes` are copied or allocated.
  bool Reserve(size_t bytes) {
    return Room(bytes) && Step(static_cast<int64_t>(bytes / kBytesPerStep));
  }
  // Whether `bytes` more may be alive.
  bool Room(size_t bytes) {
    return (bytes <= bytes_max_ && heap_.bytes() + bytes_pending_ <= bytes_max_ - bytes) ||
           FailBytes();
  }
  // Output that is not (or no longer) in a value.
  void AddPending(size_t bytes) { bytes_pending_ += bytes; }
  void SubtractPending(size_t bytes) { bytes_pending_ -= bytes; }
  // Sets the error unless there is one; always false.
  bool Fail(std::string message);
  bool FailUndefined(const Value& undefined);
  // raise_exception: the message stands for itself, without a line.
  bool Raise(std::string message);

  bool failed() const { return failed_; }
  // Takes the error back, for later. Not possible once the budget is used up.
  bool TakeError(std::string* error);
  bool raised() const { return raised_; }
  const std::string& error() const { return error_; }

  Value NewString(Text text, bool markup = false);
  Value NewString(std::string_view trusted) {
    return NewString(Text::Trusted(std::string(trusted)));
  }
  Value NewList(Kind kind = Kind::kList) { return Value(heap_.New<List>(kind)); }
  Value NewDict() { return Value(heap_.New<Dict>()); }
  Value NewUndefined(Undefined::Reason reason, std::string type, Value name) {
    return Value(heap_.New<Undefined>(reason, std::move(type), std::move(name)));
  }
  // An undefined value with a text of its own.
  Value NewUndefined(std::string text) {
    return NewUndefined(Undefined::Reason::kText, std::move(text), Value());
  }
  Value NewGenerator(const char* type_name = "generator");
  // After items were added to a list or dict.
  bool Recharge(const Value& container);

  // Levels of evaluation, so that no input overflows the stack.
  bool Enter() { return ++depth_ <= depth_max_ || FailDepth(); }
  void Leave() { --depth_; }

 private:
  static constexpr size_t kBytesPerStep = 128;
  // Passes over the whole input, with some work on each character, that a template may make.
  static constexpr int64_t kGrowth = 16;

  bool FailSteps();
  bool FailBytes();
  bool FailDepth();

  Heap heap_;  // first: everything below may refer to it
  const Dialect dialect_;
  const int depth_max_;
  int64_t steps_max_;
  int64_t steps_left_;
  size_t bytes_max_;
  size_t bytes_pending_ = 0;
  int depth_ = 0;
  const std::tm now_;
  std::string error_;
  bool failed_ = false;
  bool raised_ = false;
  bool exhausted_ = false;
};

class DepthGuard final {
 public:
  explicit DepthGuard(Runtime& runtime) : runtime_(runtime), ok_(runtime.Enter()) {}
  ~DepthGuard() { runtime_.Leave(); }
  DepthGuard(const DepthGuard&) = delete;
  DepthGuard& operator=(const DepthGuard&) = delete;
  bool ok() const { return ok_; }

 private:
  Runtime& runtime_;
  bool ok_;
};

struct Arguments;

// Anything that can be called: a macro, a method with its object, a global function.
struct Callable : Object {
  explicit Callable(Kind callable_kind = Kind::kCallable) : Object(callable_kind) {}
  virtual bool Call(Runtime& runtime, const Arguments& arguments, Value* result) = 0;
  // An attribute by name, or false where there is none.
  virtual bool Attribute(Runtime& runtime, std::string_view name, Value* result);
  // As Python prints it.
  virtual std::string Describe() const = 0;
  virtual const char* PythonType() const { return "builtin_function_or_method"; }
};

}  // namespace polysil::jinja
