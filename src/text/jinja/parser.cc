#include "text/jinja/parser.h"

#include <algorithm>

#include "text/jinja/expression_parser.h"
#include "text/jinja/token_stream.h"

namespace polysil::jinja {
namespace {

using Names = std::initializer_list<std::string_view>;

class StatementParser final {
 public:
  explicit StatementParser(TokenStream& stream) : stream_(stream), expressions_(stream) {}

  bool ParseTemplate(Body* body) { return ParseBody({}, body); }

 private:
  // Parses until a tag with one of the names, which becomes the current token; to the end of the
  // template where there are none.
  bool ParseBody(Names end_names, Body* body);
  // The end of the opening tag, the body, and the closing tag's name, which is returned.
  bool ParseBlock(Names end_names, Body* body, std::string* end_name);
  bool ParseStatement(Body* body);
  bool ParseIf(Body* body);
  bool ParseFor(Body* body);
  bool ParseSet(Body* body);
  bool ParseMacro(Body* body);
  bool ParseCallBlock(Body* body);
  bool ParseFilterBlock(Body* body);
  bool ParseWith(Body* body);
  bool ParseGeneration(Body* body);
  bool ParseNamedBlock(Body* body);
  bool ParsePrint(Body* body);
  bool ParseLoopControl(StmtKind kind, Body* body);
  bool ParseLoad(Body* body);
  bool ParseSignature(MacroSignature* macro);
  // A body with a scope of its own: nothing of the enclosing condition or loop reaches into it.
  bool ParseMacroBody(std::string_view end_name, MacroSignature* macro);
  bool ParseScopedBlock(Names end_names, bool keeps_loops, Body* body, std::string* end_name);
  bool FailUnknownTag(const std::string& name);

  TokenStream& stream_;
  ExpressionParser expressions_;
  std::vector<std::string> open_tags_;
  std::vector<std::vector<std::string>> expected_ends_;
};

std::string Quoted(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "'" : " or '") + name + "'";
  return text;
}

bool StatementParser::FailUnknownTag(const std::string& name) {
  std::string message =
      name.empty() ? "Unexpected end of template." : "Encountered unknown tag '" + name + "'.";
  if (!expected_ends_.empty()) {
    bool expected = false;
    for (const std::vector<std::string>& names : expected_ends_) {
      expected |= std::find(names.begin(), names.end(), name) != names.end();
    }
    const std::string looking = Quoted(expected_ends_.back());
    message += expected && !name.empty()
                   ? " You probably made a nesting mistake. Jinja is expecting this tag, but "
                     "currently looking for " +
                         looking + "."
                   : " Jinja was looking for the following tags: " + looking + ".";
  }
  if (!open_tags_.empty()) {
    message += " The innermost block that needs to be closed is '" + open_tags_.back() + "'.";
  }
  return stream_.Fail(std::move(message));
}

bool StatementParser::ParseBody(Names end_names, Body* body) {
  while (!stream_.at(TokenKind::kEnd)) {
    const int32_t line = stream_.current().line;
    if (stream_.at(TokenKind::kData)) {
      body->push_back(std::make_unique<DataStmt>(stream_.current().text));
      stream_.Skip();
    } else if (stream_.at(TokenKind::kVariableBegin)) {
      stream_.Skip();
      ExprPtr expr = expressions_.ParseTuple();
      if (expr == nullptr || !stream_.Expect(TokenKind::kVariableEnd)) return false;
      body->push_back(std::make_unique<PrintStmt>(std::move(expr)));
    } else if (stream_.at(TokenKind::kBlockBegin)) {
      stream_.Skip();
      for (const std::string_view name : end_names) {
        if (stream_.at_name(name)) return true;
      }
      if (!ParseStatement(body) || !stream_.Expect(TokenKind::kBlockEnd)) return false;
    } else {
      return stream_.Fail("unexpected '" + stream_.Describe() + "'");
    }
    body->back()->line = line;
  }
  return end_names.size() == 0 || FailUnknownTag({});
}

bool StatementParser::ParseBlock(Names end_names, Body* body, std::string* end_name) {
  const NestingGuard guard(stream_);
  if (!guard.ok()) return false;
  stream_.SkipOperator(":");
  if (!stream_.Expect(TokenKind::kBlockEnd)) return false;
  expected_ends_.emplace_back(end_names.begin(), end_names.end());
  const bool ok = ParseBody(end_names, body);
  expected_ends_.pop_back();
  if (!ok) return false;
  *end_name = stream_.current().text;
  stream_.Skip();
  return true;
}

bool StatementParser::ParseScopedBlock(Names end_names, bool keeps_loops, Body* body,
                                       std::string* end_name) {
  const bool guarded = std::exchange(stream_.guarded, false);
  const int loops = keeps_loops ? stream_.loops : std::exchange(stream_.loops, 0);
  const bool ok = ParseBlock(end_names, body, end_name);
  stream_.guarded = guarded;
  stream_.loops = loops;
  return ok;
}

bool StatementParser::ParseStatement(Body* body) {
  if (!stream_.at(TokenKind::kName)) return stream_.Fail("tag name expected");
  using Parse = bool (StatementParser::*)(Body*);
  static constexpr std::pair<std::string_view, Parse> kStatements[] = {
      {"if", &StatementParser::ParseIf},
      {"for", &StatementParser::ParseFor},
      {"set", &StatementParser::ParseSet},
      {"macro", &StatementParser::ParseMacro},
      {"call", &StatementParser::ParseCallBlock},
      {"filter", &StatementParser::ParseFilterBlock},
      {"with", &StatementParser::ParseWith},
      {"generation", &StatementParser::ParseGeneration},
      {"block", &StatementParser::ParseNamedBlock},
      {"print", &StatementParser::ParsePrint},
      {"include", &StatementParser::ParseLoad},
      {"import", &StatementParser::ParseLoad},
      {"from", &StatementParser::ParseLoad},
      {"extends", &StatementParser::ParseLoad},
  };
  const std::string name = stream_.current().text;
  open_tags_.push_back(name);
  bool ok = false;
  if (name == "break" || name == "continue") {
    ok = ParseLoopControl(name == "break" ? StmtKind::kBreak : StmtKind::kContinue, body);
  } else {
    const auto* found = std::find_if(std::begin(kStatements), std::end(kStatements),
                                     [&name](const auto& entry) { return entry.first == name; });
    if (found == std::end(kStatements)) {
      open_tags_.pop_back();
      return FailUnknownTag(name);
    }
    ok = (this->*found->second)(body);
  }
  open_tags_.pop_back();
  return ok;
}

bool StatementParser::ParseIf(Body* body) {
  const bool guarded = std::exchange(stream_.guarded, true);
  auto statement = std::make_unique<IfStmt>();
  std::string end = "elif";
  while (end == "elif") {
    if (statement->branches.empty()) stream_.Skip();
    auto& [test, branch] = statement->branches.emplace_back();
    test = expressions_.ParseTuple(false);
    if (test == nullptr || !ParseBlock({"elif", "else", "endif"}, &branch, &end)) return false;
  }
  if (end == "else" && !ParseBlock({"endif"}, &statement->otherwise, &end)) return false;
  stream_.guarded = guarded;
  body->push_back(std::move(statement));
  return true;
}

bool TargetHas(const Target& target, int32_t id) {
  if (target.kind == Target::Kind::kName) return target.id == id;
  return std::any_of(target.items.begin(), target.items.end(),
                     [id](const Target& item) { return TargetHas(item, id); });
}

bool StatementParser::ParseFor(Body* body) {
  stream_.Skip();
  auto statement = std::make_unique<ForStmt>();
  if (!expressions_.ParseTarget(false, "in", &statement->target) || !stream_.ExpectName("in")) {
    return false;
  }
  if (TargetHas(statement->target, kLoopId)) {
    return stream_.Fail("Can't assign to special loop variable in for-loop target");
  }
  statement->iterable = expressions_.ParseTuple(false, "recursive");
  if (statement->iterable == nullptr) return false;
  if (stream_.SkipName("if")) {
    const bool guarded = std::exchange(stream_.guarded, false);
    statement->condition = expressions_.ParseExpression();
    stream_.guarded = guarded;
    if (statement->condition == nullptr) return false;
  }
  statement->recursive = stream_.SkipName("recursive");
  std::string end;
  ++stream_.loops;
  if (!ParseScopedBlock({"endfor", "else"}, true, &statement->body, &end)) return false;
  --stream_.loops;
  if (end == "else" && !ParseScopedBlock({"endfor"}, true, &statement->otherwise, &end)) {
    return false;
  }
  body->push_back(std::move(statement));
  return true;
}

bool StatementParser::ParseSet(Body* body) {
  stream_.Skip();
  Target target;
  if (!expressions_.ParseTarget(true, {}, &target)) return false;
  if (stream_.loops > 0 && TargetHas(target, kLoopId)) {
    return stream_.Fail("Can't assign to special loop variable in for-loop target");
  }
  if (stream_.SkipOperator("=")) {
    auto statement = std::make_unique<SetStmt>();
    statement->target = std::move(target);
    statement->value = expressions_.ParseTuple();
    if (statement->value == nullptr) return false;
    body->push_back(std::move(statement));
    return true;
  }
  auto statement = std::make_unique<SetBlockStmt>();
  statement->target = std::move(target);
  std::string end;
  if (!expressions_.ParseFilters(false, &statement->filter) ||
      !ParseScopedBlock({"endset"}, true, &statement->body, &end)) {
    return false;
  }
  body->push_back(std::move(statement));
  return true;
}

bool StatementParser::ParseSignature(MacroSignature* macro) {
  if (!stream_.ExpectOperator("(")) return false;
  while (!stream_.at_operator(")")) {
    if (!macro->parameters.empty() && !stream_.ExpectOperator(",")) return false;
    int32_t id = 0;
    std::string name;
    if (!expressions_.ParseTargetName(&id, &name)) return false;
    for (const auto& [other, literal] : macro->parameters) {
      if (other == id) return stream_.Fail("duplicate argument '" + name + "' in macro definition");
    }
    if (stream_.SkipOperator("=")) {
      ExprPtr value = expressions_.ParseExpression();
      if (value == nullptr) return false;
      macro->defaults.push_back(std::move(value));
    } else if (!macro->defaults.empty()) {
      return stream_.Fail("non-default argument follows default argument");
    }
    macro->parameters.emplace_back(id, std::make_unique<Literal>(name));
  }
  return stream_.ExpectOperator(")");
}

bool StatementParser::ParseMacroBody(std::string_view end_name, MacroSignature* macro) {
  std::string end;
  stream_.macros.push_back(macro);
  const bool ok = ParseScopedBlock({end_name}, false, &macro->body, &end);
  stream_.macros.pop_back();
  return ok;
}

bool StatementParser::ParseMacro(Body* body) {
  stream_.Skip();
  auto statement = std::make_unique<MacroStmt>();
  if (!expressions_.ParseTargetName(&statement->id, &statement->macro.name) ||
      !ParseSignature(&statement->macro) || !ParseMacroBody("endmacro", &statement->macro)) {
    return false;
  }
  body->push_back(std::move(statement));
  return true;
}

bool StatementParser::ParseCallBlock(Body* body) {
  stream_.Skip();
  auto statement = std::make_unique<CallBlockStmt>();
  if (stream_.at_operator("(") && !ParseSignature(&statement->caller)) return false;
  statement->call = expressions_.ParseExpression();
  if (statement->call == nullptr) return false;
  if (statement->call->kind != ExprKind::kCall) return stream_.Fail("expected call");
  if (!ParseMacroBody("endcall", &statement->caller)) return false;
  body->push_back(std::move(statement));
  return true;
}

bool StatementParser::ParseFilterBlock(Body* body) {
  stream_.Skip();
  auto statement = std::make_unique<FilterBlockStmt>();
  std::string end;
  if (!expressions_.ParseFilters(true, &statement->filter) ||
      !ParseScopedBlock({"endfilter"}, true, &statement->body, &end)) {
    return false;
  }
  body->push_back(std::move(statement));
  return true;
}

bool StatementParser::ParseWith(Body* body) {
  stream_.Skip();
  auto statement = std::make_unique<WithStmt>();
  while (!stream_.at(TokenKind::kBlockEnd)) {
    if (!statement->bindings.empty() && !stream_.ExpectOperator(",")) return false;
    auto& [target, value] = statement->bindings.emplace_back();
    if (!expressions_.ParseTarget(false, {}, &target) || !stream_.ExpectOperator("=")) return false;
    value = expressions_.ParseExpression();
    if (value == nullptr) return false;
  }
  std::string end;
  if (!ParseScopedBlock({"endwith"}, true, &statement->body, &end)) return false;
  body->push_back(std::move(statement));
  return true;
}

bool StatementParser::ParseGeneration(Body* body) {
  stream_.Skip();
  auto statement = std::make_unique<ScopeStmt>();
  std::string end;
  if (!ParseScopedBlock({"endgeneration"}, false, &statement->body, &end)) return false;
  body->push_back(std::move(statement));
  return true;
}

bool StatementParser::ParseNamedBlock(Body* body) {
  stream_.Skip();
  const std::string name = stream_.current().text;
  if (!stream_.Expect(TokenKind::kName)) return false;
  auto statement = std::make_unique<ScopeStmt>();
  statement->isolated = !stream_.SkipName("scoped");
  stream_.SkipName("required");
  std::string end;
  if (!ParseScopedBlock({"endblock"}, false, &statement->body, &end)) return false;
  stream_.SkipName(name);
  body->push_back(std::move(statement));
  return true;
}

bool StatementParser::ParsePrint(Body* body) {
  stream_.Skip();
  bool any = false;
  while (!stream_.at(TokenKind::kBlockEnd)) {
    if (any && !stream_.ExpectOperator(",")) return false;
    any = true;
    ExprPtr expr = expressions_.ParseExpression();
    if (expr == nullptr) return false;
    body->push_back(std::make_unique<PrintStmt>(std::move(expr)));
  }
  // ParseBody gives the line to the last statement.
  if (!any) body->push_back(std::make_unique<DataStmt>(std::string()));
  return true;
}

bool StatementParser::ParseLoopControl(StmtKind kind, Body* body) {
  const std::string name = stream_.current().text;
  if (stream_.loops == 0) return stream_.Fail("'" + name + "' outside loop");
  stream_.Skip();
  body->push_back(std::make_unique<Stmt>(kind));
  return true;
}

bool StatementParser::ParseLoad(Body* body) {
  // Parsed as an expression and the rest skipped: it fails only where it is reached.
  stream_.Skip();
  if (expressions_.ParseExpression() == nullptr) return false;
  while (stream_.at(TokenKind::kName) || stream_.at_operator(",")) stream_.Skip();
  body->push_back(std::make_unique<FailStmt>("no loader for this environment specified"));
  return true;
}

}  // namespace

StatusOr<std::unique_ptr<const Ast>> Parse(std::string_view source) {
  if (source.size() > kSourceBytesMax) {
    return InvalidArgument("the chat template has {} bytes, at most {} are accepted", source.size(),
                           kSourceBytesMax);
  }
  TokenStream stream(Tokenize(source));
  auto ast = std::make_unique<Ast>();
  StatementParser parser(stream);
  if (!parser.ParseTemplate(&ast->body) || stream.failed()) {
    return InvalidArgument("chat template, line {}: {}", stream.error_line(), stream.error());
  }
  for (const TokenStream::Unknown& unknown : stream.unknown) {
    if (!unknown.guarded) {
      return InvalidArgument("chat template, line {}: {}", unknown.line, unknown.message);
    }
  }
  ast->names = stream.TakeNames();
  return std::unique_ptr<const Ast>(std::move(ast));
}

}  // namespace polysil::jinja
