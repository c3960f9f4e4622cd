// The parsed form of a template. Nodes are immutable after parsing and owned by their parents;
// literals are Values that belong to no heap, so that threads may share a template. The height of
// every expression and the nesting of statements are bounded by the parser.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "text/jinja/number.h"
#include "text/jinja/value.h"

namespace polysil::jinja {

struct Filter;  // functions.h
struct Test;

// A string that lives as long as the template.
struct Literal {
  explicit Literal(std::string text)
      : object(std::make_unique<String>(Text::Trusted(std::move(text)))), value(object.get()) {}
  const std::string& text() const { return object->bytes(); }
  std::unique_ptr<String> object;
  Value value;
};

enum class ExprKind : uint8_t {
  kConstant,
  kString,
  kBigInteger,
  kName,
  kAttribute,
  kItem,
  kSlice,
  kCall,
  kFilter,
  kTest,
  kNot,
  kNegate,
  kPlus,
  kArithmetic,
  kConcat,
  kCompare,
  kAnd,
  kOr,
  kCondition,
  kList,
  kTuple,
  kDict,

};

struct Expr {
  explicit Expr(ExprKind expr_kind) : kind(expr_kind) {}
  virtual ~Expr() = default;
  ExprKind kind;
  int32_t line = 0;
  int32_t height = 1;
};
using ExprPtr = std::unique_ptr<Expr>;

struct ConstantExpr final : Expr {
  explicit ConstantExpr(Value constant) : Expr(ExprKind::kConstant), value(std::move(constant)) {}
  Value value;  // a scalar
};
struct StringExpr final : Expr {
  explicit StringExpr(std::string text) : Expr(ExprKind::kString), literal(std::move(text)) {}
  Literal literal;
};
// An integer beyond 64 bits.
struct BigIntegerExpr final : Expr {
  BigIntegerExpr(std::string number, int number_base)
      : Expr(ExprKind::kBigInteger), digits(std::move(number)), base(number_base) {}
  std::string digits;
  int base;
};
struct NameExpr final : Expr {
  NameExpr(int32_t name_id, std::string name)
      : Expr(ExprKind::kName), id(name_id), literal(std::move(name)) {}
  int32_t id;
  Literal literal;
};
struct AttributeExpr final : Expr {
  AttributeExpr(ExprPtr of, std::string name)
      : Expr(ExprKind::kAttribute), base(std::move(of)), literal(std::move(name)) {}
  ExprPtr base;
  Literal literal;
};
struct ItemExpr final : Expr {
  ItemExpr(ExprPtr of, ExprPtr at)
      : Expr(ExprKind::kItem), base(std::move(of)), key(std::move(at)) {}
  ExprPtr base;
  ExprPtr key;
};
struct SliceExpr final : Expr {
  SliceExpr() : Expr(ExprKind::kSlice) {}
  ExprPtr base;
  ExprPtr start, stop, step;  // null: left out
};

struct CallArguments {
  std::vector<ExprPtr> positional;
  std::vector<std::pair<Literal, ExprPtr>> keyword;
  ExprPtr star;         // *args
  ExprPtr double_star;  // **kwargs
};
struct CallExpr final : Expr {
  CallExpr() : Expr(ExprKind::kCall) {}
  ExprPtr callee;
  CallArguments arguments;
};
struct FilterExpr final : Expr {
  FilterExpr() : Expr(ExprKind::kFilter) {}
  ExprPtr base;  // null: the body of the enclosing filter or set block
  std::string name;
  const Filter* filter = nullptr;  // null: unknown, an error where it is reached
  CallArguments arguments;
};
struct TestExpr final : Expr {
  TestExpr() : Expr(ExprKind::kTest) {}
  ExprPtr base;
  std::string name;
  const Test* test = nullptr;
  CallArguments arguments;
};

struct UnaryExpr final : Expr {  // kNot, kNegate, kPlus
  UnaryExpr(ExprKind unary_kind, ExprPtr of) : Expr(unary_kind), operand(std::move(of)) {}
  ExprPtr operand;
};
struct ArithmeticExpr final : Expr {
  ArithmeticExpr(Arithmetic what, ExprPtr a, ExprPtr b)
      : Expr(ExprKind::kArithmetic), operation(what), left(std::move(a)), right(std::move(b)) {}
  Arithmetic operation;
  ExprPtr left, right;
};
struct LogicExpr final : Expr {  // kAnd, kOr
  LogicExpr(ExprKind logic_kind, ExprPtr a, ExprPtr b)
      : Expr(logic_kind), left(std::move(a)), right(std::move(b)) {}
  ExprPtr left, right;
};
enum class Comparison : uint8_t {
  kEqual,
  kNotEqual,
  kLess,
  kLessEqual,
  kGreater,
  kGreaterEqual,
  kIn,
  kNotIn
};
struct CompareExpr final : Expr {
  CompareExpr() : Expr(ExprKind::kCompare) {}
  ExprPtr first;
  std::vector<std::pair<Comparison, ExprPtr>> rest;
};
struct ConditionExpr final : Expr {
  ConditionExpr() : Expr(ExprKind::kCondition) {}
  ExprPtr test, yes, no;  // no: may be null
};
struct SequenceExpr final : Expr {  // kConcat, kList, kTuple
  explicit SequenceExpr(ExprKind sequence_kind) : Expr(sequence_kind) {}
  std::vector<ExprPtr> items;
};
struct DictExpr final : Expr {
  DictExpr() : Expr(ExprKind::kDict) {}
  std::vector<std::pair<ExprPtr, ExprPtr>> items;
};

// What `set` and `for` assign to.
struct Target {
  enum class Kind : uint8_t { kName, kAttribute, kTuple };
  Kind kind = Kind::kName;
  int32_t id = 0;                      // of the name, or of the namespace
  std::unique_ptr<Literal> attribute;  // kAttribute
  std::vector<Target> items;           // kTuple
};

enum class StmtKind : uint8_t {
  kData,
  kPrint,
  kIf,
  kFor,
  kSet,
  kSetBlock,
  kMacro,
  kCallBlock,
  kFilterBlock,
  kWith,
  kScope,
  kBreak,
  kContinue,
  kFail,
};

struct Stmt {
  explicit Stmt(StmtKind stmt_kind) : kind(stmt_kind) {}
  virtual ~Stmt() = default;
  StmtKind kind;
  int32_t line = 0;
};
using StmtPtr = std::unique_ptr<Stmt>;
using Body = std::vector<StmtPtr>;

struct DataStmt final : Stmt {
  explicit DataStmt(std::string data) : Stmt(StmtKind::kData), text(std::move(data)) {}
  std::string text;
};
struct PrintStmt final : Stmt {
  explicit PrintStmt(ExprPtr what) : Stmt(StmtKind::kPrint), expr(std::move(what)) {}
  ExprPtr expr;
};
struct IfStmt final : Stmt {
  IfStmt() : Stmt(StmtKind::kIf) {}
  std::vector<std::pair<ExprPtr, Body>> branches;
  Body otherwise;
};
struct ForStmt final : Stmt {
  ForStmt() : Stmt(StmtKind::kFor) {}
  Target target;
  ExprPtr iterable;
  ExprPtr condition;  // may be null
  bool recursive = false;
  Body body;
  Body otherwise;
};
struct SetStmt final : Stmt {
  SetStmt() : Stmt(StmtKind::kSet) {}
  Target target;
  ExprPtr value;
};
struct SetBlockStmt final : Stmt {
  SetBlockStmt() : Stmt(StmtKind::kSetBlock) {}
  Target target;
  ExprPtr filter;  // a chain of FilterExpr whose innermost base is null; may be null
  Body body;
};
struct MacroSignature {
  std::string name;
  std::vector<std::pair<int32_t, std::unique_ptr<Literal>>> parameters;
  std::vector<ExprPtr> defaults;  // of the last parameters
  Body body;
  bool takes_varargs = false;  // the body reads `varargs`
  bool takes_kwargs = false;
  bool takes_caller = false;
};
struct MacroStmt final : Stmt {
  MacroStmt() : Stmt(StmtKind::kMacro) {}
  int32_t id = 0;
  MacroSignature macro;
};
struct CallBlockStmt final : Stmt {
  CallBlockStmt() : Stmt(StmtKind::kCallBlock) {}
  MacroSignature caller;
  ExprPtr call;  // a CallExpr
};
struct FilterBlockStmt final : Stmt {
  FilterBlockStmt() : Stmt(StmtKind::kFilterBlock) {}
  ExprPtr filter;
  Body body;
};
struct WithStmt final : Stmt {
  WithStmt() : Stmt(StmtKind::kWith) {}
  std::vector<std::pair<Target, ExprPtr>> bindings;
  Body body;
};
struct ScopeStmt final : Stmt {  // generation, block
  ScopeStmt() : Stmt(StmtKind::kScope) {}
  bool isolated = false;  // sees the template's own variables only (block)
  Body body;
};
struct FailStmt final : Stmt {  // include, import, extends: there is nothing to load from
  explicit FailStmt(std::string why) : Stmt(StmtKind::kFail), message(std::move(why)) {}
  std::string message;
};

// A template and what its rendering needs to know beforehand.
struct Ast {
  Body body;
  std::vector<std::string> names;  // by id: every variable that the template mentions
};

// Ids of the names that the interpreter itself binds.
inline constexpr int32_t kLoopId = 0;
inline constexpr int32_t kCallerId = 1;
inline constexpr int32_t kVarargsId = 2;
inline constexpr int32_t kKwargsId = 3;

}  // namespace polysil::jinja
