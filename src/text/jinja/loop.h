// Loop: the iteration behind one for statement and the `loop` variable of its body.
#pragma once

#include <deque>
#include <optional>
#include <string>

#include "text/jinja/interpreter.h"
#include "text/jinja/operations.h"

namespace polysil::jinja {

class Loop final : public Callable {
 public:
  // `outer`: the scope around the statement.
  Loop(Interpreter& interpreter, const ForStmt& statement, Value outer, int depth)
      : Callable(Kind::kLoop),
        interpreter_(interpreter),
        statement_(statement),
        outer_(std::move(outer)),
        depth_(depth) {}

  bool Start(Value iterable);
  // The next item that passes the statement's condition. False at the end, and on an error.
  bool Next(Value* item);

  void Clear() override;
  // loop(items): the body again, one level deeper.
  bool Call(Runtime& runtime, const Arguments& arguments, Value* result) override;
  bool Attribute(Runtime& runtime, std::string_view name, Value* result) override;
  std::string Describe() const override;
  const char* PythonType() const override { return "LoopContext"; }
  // loop.cycle(...), loop.changed(...).
  bool Cycle(const Arguments& arguments, Value* result);
  bool Changed(const Arguments& arguments, Value* result);

 private:
  bool Pull(Value* item);
  bool Passes(const Value& item);
  // Whether another item follows; looks one ahead.
  bool Peek();
  bool Length(int64_t* length);

  Interpreter& interpreter_;
  const ForStmt& statement_;
  Value outer_;
  const int depth_;
  Value iterable_;
  Iteration iteration_;
  int64_t index0_ = -1;
  std::optional<int64_t> length_;
  std::deque<Value> ahead_;  // pulled, not yet given out
  Value current_;
  Value before_;
  Value last_changed_;
  bool changed_once_ = false;
};

}  // namespace polysil::jinja
