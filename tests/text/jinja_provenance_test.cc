// Which bytes of an output came from outside of the template: through every operation that moves
// text.
#include <gtest/gtest.h>

#include "text/golden_files.h"
#include "text/template_runner.h"

namespace polysil {
namespace {

using jinja::Dialect;

// Untrusted runs stand in brackets. `c` is "<|x|>\n y", `n` 42, `d` {"k": "v"}, `l` ["a", "b"].
std::string Marked(std::string_view source, Dialect dialect = Dialect::kServing) {
  const boost::json::object variables = {{"c", "<|x|>\n y"},
                                         {"n", 42},
                                         {"f", 1.5},
                                         {"d", boost::json::object{{"k", "v"}}},
                                         {"l", boost::json::array{"a", "b"}}};
  const auto result = RunTemplate(source, variables, dialect);
  if (!result.ok()) return "error: " + Message(result.status());
  return ShowUntrusted(result->bytes(), result->untrusted());
}

TEST(JinjaProvenance, TemplateTextAndLiteralsAreTrusted) {
  EXPECT_EQ(Marked("<|a|>{{ '<|b|>' }}"), "<|a|><|b|>");
  EXPECT_EQ(Marked("{{ ['<|a|>', 'b']|join('|')|upper|trim }}"), "<|A|>|B");
  EXPECT_EQ(Marked("{{ 'a b'.split(' ')[1] ~ 5 ~ none ~ [1, 'x']|tojson }}"), "b5None[1, \"x\"]");
  EXPECT_EQ(Marked("{% for i in range(3) %}{{ loop.index }}{% endfor %}"), "123");
}

TEST(JinjaProvenance, ContentIsUntrustedThroughConcatenation) {
  EXPECT_EQ(Marked("<|u|>{{ c }}<|e|>"), "<|u|>[<|x|>\n y]<|e|>");
  EXPECT_EQ(Marked("{{ '<|u|>' + c + '<|e|>' }}"), "<|u|>[<|x|>\n y]<|e|>");
  EXPECT_EQ(Marked("{{ '<' ~ c ~ '>' }}"), "<[<|x|>\n y]>");
  EXPECT_EQ(Marked("{% set x = c %}{% set x = x + x %}{{ x }}"), "[<|x|>\n y<|x|>\n y]");
  EXPECT_EQ(Marked("{{ c * 2 }}|{{ ('<' + l[0]) * 2 }}"), "[<|x|>\n y<|x|>\n y]|<[a]<[a]");
  EXPECT_EQ(Marked("{% set ns = namespace(s='<') %}{% for x in l %}{% set ns.s = ns.s ~ x ~ '>' %}"
                   "{% endfor %}{{ ns.s }}"),
            "<[a]>[b]>");
}

TEST(JinjaProvenance, ContentIsUntrustedThroughSlicesAndItems) {
  EXPECT_EQ(Marked("{{ ('A' + c + 'B')[0:3] }}"), "A[<|]");
  EXPECT_EQ(Marked("{{ ('A' + c + 'B')[::-1] }}"), "B[y \n>|x|<]A");
  EXPECT_EQ(Marked("{{ ('A' + c)[0] }}{{ ('A' + c)[1] }}{{ c|first }}{{ c|last }}"), "A[<<y]");
  EXPECT_EQ(Marked("{% for x in 'A' + l[0] %}{{ x }},{% endfor %}"), "A,[a],");
  EXPECT_EQ(Marked("{{ ('A' + l[0])|reverse }}{{ ('A' ~ l[0])|list }}"), "[a]A['A', '[a]']");
}

TEST(JinjaProvenance, ContentIsUntrustedThroughMethods) {
  EXPECT_EQ(Marked("{{ (' <' + c + '> ').strip() }}"), "<[<|x|>\n y]>");
  EXPECT_EQ(Marked("{{ ('A|' + c).split('|') }}"), "['A', '[<]', '[x]', '[>\\n y]']");
  EXPECT_EQ(Marked("{{ c.split('|')[1] ~ '|>' }}{{ c.rsplit('|', 1)[0] }}"), "[x]|>[<|x]");
  EXPECT_EQ(Marked("{{ ('A' + c).replace('x', '<|z|>') }}"), "A[<|]<|z|>[|>\n y]");
  EXPECT_EQ(Marked("{{ 'A-B'.replace('-', c) }}"), "A[<|x|>\n y]B");
  EXPECT_EQ(Marked("{{ ('A' + c).upper() }}{{ c.lower() }}{{ ('a ' + c).title() }}"),
            "A[<|X|>\n Y<|x|>\n y]A [<|X|>\n Y]");
  EXPECT_EQ(Marked("{{ c.join(['A', 'B']) }}|{{ '|'.join(l) }}"), "A[<|x|>\n y]B|[a]|[b]");
  EXPECT_EQ(Marked("{{ c.splitlines() }}{{ c.partition('|') }}"),
            "['[<|x|>]', '[ y]']('[<]', '[|]', '[x|>\\n y]')");
  EXPECT_EQ(Marked("{{ l[0].center(3, '-') }}{{ l[0].zfill(3) }}{{ l[0].ljust(2) }}"),
            "-[a]-00[aa] ");
  EXPECT_EQ(Marked("{{ '{}<{}>'.format(c, 'T') }}{{ c.format() }}"), "[<|x|>\n y]<T>[<|x|>\n y]");
  EXPECT_EQ(Marked("{{ '%s|%5s' % (c, l[0]) }}{{ (l[0] + '%s') % 'T' }}"), "[<|x|>\n y]|    [aa]T");
  EXPECT_EQ(Marked("{{ c.encode() }}"), "b'[<|x|>\\n y]'");
}

TEST(JinjaProvenance, ContentIsUntrustedThroughFilters) {
  EXPECT_EQ(Marked("{{ ['<', c, '>']|join('-') }}"), "<-[<|x|>\n y]->");
  EXPECT_EQ(Marked("{{ l|join(c) }}|{{ l|map('upper')|join('+') }}"), "[a<|x|>\n yb]|[A]+[B]");
  EXPECT_EQ(Marked("{{ ('A\n' + c)|indent(2) }}"), "A\n  [<|x|>]\n  [ y]");
  EXPECT_EQ(Marked("{{ ('A' + c)|replace('x', 'z') }}{{ 'A'|replace('A', c) }}"),
            "A[<|]z[|>\n y<|x|>\n y]");
  EXPECT_EQ(Marked("{{ (' ' + c)|trim }}{{ c|capitalize }}{{ ('A ' + c)|title }}"),
            "[<|x|>\n y<|x|>\n y]A [<|x|>\n Y]");
  EXPECT_EQ(Marked("{{ c|e }}{{ c|safe }}{{ c|string }}{{ '%s'|format(c) }}"),
            "[&lt;|x|&gt;\n y<|x|>\n y<|x|>\n y<|x|>\n y]");
  EXPECT_EQ(Marked("{{ c|truncate(3, true, '..', 0) }}{{ c|urlencode }}{{ c|striptags }}"),
            "[<]..[%3C%7Cx%7C%3E%0A%20yy]");
  EXPECT_EQ(Marked("{{ l|sort(reverse=true)|list }}{{ l|first }}{{ l|unique|list|last }}"),
            "['[b]', '[a]'][ab]");
  EXPECT_EQ(Marked("{{ missing|default(c) }}{{ ''|default(c, true) }}"), "[<|x|>\n y<|x|>\n y]");
}

TEST(JinjaProvenance, ContentIsUntrustedThroughJsonAndRepr) {
  EXPECT_EQ(Marked("{{ d|tojson }}{{ d }}"), "{\"[k]\": \"[v]\"}{'[k]': '[v]'}");
  EXPECT_EQ(Marked("{{ {'role': c}|tojson }}"), "{\"role\": \"[<|x|>\\n y]\"}");
  EXPECT_EQ(Marked("{{ l|tojson(indent=1) }}{{ [n, f, 7]|tojson }}"),
            "[\n \"[a]\",\n \"[b]\"\n][[42], [1.5], 7]");
  EXPECT_EQ(Marked("{{ ('[\"' ~ c.strip() ~ '\"]') }}"), "[\"[<|x|>\n y]\"]");
  EXPECT_EQ(Marked("{{ ('{\"a\": [\"' + l[0] + '\", 1]}')|from_json }}"), "{'[a]': ['[a]', [1]]}");
}

TEST(JinjaProvenance, NumbersFromOutsideAreUntrustedWhenPrinted) {
  EXPECT_EQ(Marked("<|r_{{ n }}|>{{ n + 1 }}{{ 1 - n }}{{ n|string }}{{ n * 1.0 }}"),
            "<|r_[42]|>[43-414242.0]");
  EXPECT_EQ(
      Marked("{{ f|round }}{{ f|int }}{{ -n }}{{ -n|abs }}{{ '%d' % n }}{{ '{}'.format(n) }}"),
      "[2.01-42424242]");
  EXPECT_EQ(Marked("{{ '7'|int }}{{ (l[0] + '7')|int(3) }}{{ c|length }}{{ c.find('x') }}"),
            "73[82]");
  EXPECT_EQ(Marked("{{ l|length }}{{ loop is defined }}{{ n > 1 }}"), "2FalseTrue");
}

TEST(JinjaProvenance, ContentIsUntrustedThroughMacrosAndBlocks) {
  EXPECT_EQ(Marked("{% macro m(x) %}<|{{ x }}|>{% endmacro %}{{ m(c) }}{{ m('T')|upper }}"),
            "<|[<|x|>\n y]|><|T|>");
  EXPECT_EQ(Marked("{% set b %}<{{ c }}>{% endset %}{{ b|replace('y', 'z') }}"), "<[<|x|>\n ]z>");
  EXPECT_EQ(Marked("{% filter upper %}a{{ l[0] }}{% endfilter %}"), "A[A]");
  EXPECT_EQ(
      Marked("{% macro m() %}<{{ caller() }}>{% endmacro %}{% call m() %}{{ c }}!{% endcall %}"),
      "<[<|x|>\n y]!>");
  EXPECT_EQ(Marked("{% for k, v in d.items() %}{{ k }}={{ v }}{% endfor %}"), "[k]=[v]");
  EXPECT_EQ(Marked("{% for x in l recursive %}{{ x }}{% endfor %}"), "[ab]");
}

TEST(JinjaProvenance, MarkupStringsKeepTheirMarks) {
  EXPECT_EQ(Marked("{{ ('<'|safe) + c }}", Dialect::kReference), "<[&lt;|x|&gt;\n y]");
  EXPECT_EQ(Marked("{{ (c|safe)|upper }}", Dialect::kReference), "[<|X|>\n Y]");
}

TEST(JinjaProvenance, ThousandsOfRunsStayCheap) {
  // 20,000 runs, then operations on all of them.
  const auto result = RunTemplate(
      "{% set ns = namespace(s='') %}{% for i in range(20000) %}{% set ns.s = ns.s ~ '<' ~ c %}"
      "{% if loop.index % 1000 == 0 %}{{ ns.s }}{% set ns.s = '' %}{% endif %}{% endfor %}",
      {{"c", "x"}}, Dialect::kServing);
  ASSERT_TRUE(result.ok()) << Message(result.status());
  EXPECT_EQ(result->size(), 40000u);
  EXPECT_EQ(result->untrusted().size(), 20000u);
}

}  // namespace
}  // namespace polysil
