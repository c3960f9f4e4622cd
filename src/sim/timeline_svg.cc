#include "sim/timeline_svg.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <string_view>
#include <vector>

#include "polysil/base/check.h"

namespace polysil {
namespace {

constexpr double kWidth = 960.0;
constexpr double kLeft = 70.0;
constexpr double kRight = 20.0;
constexpr double kTop = 46.0;
constexpr double kPanelHeight = 130.0;
constexpr double kPanelGap = 44.0;

struct Line {
  std::string_view name;
  std::string_view colour;
  std::function<double(const Timeline::Bin&)> value;  // negative: none in this bin
};

struct Panel {
  std::string_view title;
  std::vector<Line> lines;
};

// The next of 1, 2, 5, 10, 20, ...
double RoundUp(double value) {
  if (value <= 0.0) return 1.0;
  const double power = std::pow(10.0, std::floor(std::log10(value)));
  for (const double step : {1.0, 2.0, 5.0}) {
    if (value <= step * power) return step * power;
  }
  return 10.0 * power;
}

double PercentileSeconds(const LatencyHistogram& latency, double share) {
  return latency.total() > 0 ? static_cast<double>(latency.PercentileNs(share)) / 1e9 : -1.0;
}

std::vector<Panel> Panels() {
  using Bin = Timeline::Bin;
  return {
      {"KV blocks",
       {{"used", "#c0392b", [](const Bin& bin) { return bin.MeanOf(bin.blocks_used); }},
        {"used and cached", "#2980b9",
         [](const Bin& bin) { return bin.MeanOf(bin.blocks_used + bin.blocks_cached); }}}},
      {"requests",
       {{"running", "#27ae60", [](const Bin& bin) { return bin.MeanOf(bin.running); }},
        {"waiting", "#e67e22", [](const Bin& bin) { return bin.MeanOf(bin.waiting); }}}},
      {"time to first token, s",
       {{"p50", "#2980b9",
         [](const Bin& bin) { return PercentileSeconds(bin.time_to_first_token, 0.5); }},
        {"p99", "#c0392b",
         [](const Bin& bin) { return PercentileSeconds(bin.time_to_first_token, 0.99); }}}},
      {"between tokens, s",
       {{"p50", "#2980b9", [](const Bin& bin) { return PercentileSeconds(bin.inter_token, 0.5); }},
        {"p99", "#c0392b",
         [](const Bin& bin) { return PercentileSeconds(bin.inter_token, 0.99); }}}}};
}

void DrawLine(const Timeline& timeline, const Line& line, double top, double most,
              std::string& svg) {
  const auto out = std::back_inserter(svg);
  const double bins = static_cast<double>(timeline.bins().size());
  fmt::format_to(out, "<path fill=\"none\" stroke=\"{}\" stroke-width=\"1.3\" d=\"", line.colour);
  char command = 'M';
  for (size_t i = 0; i < timeline.bins().size(); ++i) {
    const double value = line.value(timeline.bins()[i]);
    if (value < 0.0) continue;
    const double x = kLeft + (static_cast<double>(i) + 0.5) / bins * (kWidth - kLeft - kRight);
    fmt::format_to(out, "{}{:.1f} {:.1f}", command, x, top + kPanelHeight * (1.0 - value / most));
    command = 'L';
  }
  svg += "\"/>\n";
}

void DrawPanel(const Timeline& timeline, const Panel& panel, double top, std::string& svg) {
  double most = 0.0;
  for (const Timeline::Bin& bin : timeline.bins()) {
    for (const Line& line : panel.lines) most = std::max(most, line.value(bin));
  }
  most = RoundUp(most);
  const auto out = std::back_inserter(svg);
  fmt::format_to(out,
                 "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"none\" "
                 "stroke=\"#bbb\"/>\n<text x=\"{}\" y=\"{}\" font-weight=\"bold\">{}</text>\n",
                 kLeft, top, kWidth - kLeft - kRight, kPanelHeight, kLeft, top - 6.0, panel.title);
  for (const double share : {0.0, 0.5, 1.0}) {
    fmt::format_to(out, "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{:g}</text>\n", kLeft - 6.0,
                   top + kPanelHeight * (1.0 - share) + 4.0, most * share);
  }
  double name_x = kWidth - kRight - 110.0 * static_cast<double>(panel.lines.size());
  for (const Line& line : panel.lines) {
    fmt::format_to(out, "<text x=\"{}\" y=\"{}\" fill=\"{}\">{}</text>\n", name_x, top - 6.0,
                   line.colour, line.name);
    name_x += 110.0;
    DrawLine(timeline, line, top, most, svg);
  }
}

// What stands in a plan's description must not be markup.
std::string Escape(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    if (c == '&') {
      escaped += "&amp;";
    } else if (c == '<') {
      escaped += "&lt;";
    } else {
      escaped += c;
    }
  }
  return escaped;
}

}  // namespace

std::string SvgOf(const Simulation& simulation) {
  const Timeline* timeline = simulation.timeline();
  CHECK(timeline != nullptr, "the simulation kept no timeline");
  const std::vector<Panel> panels = Panels();
  const double height =
      kTop + static_cast<double>(panels.size()) * (kPanelHeight + kPanelGap) + 10.0;
  const double end_s =
      static_cast<double>(timeline->bins().size()) * static_cast<double>(timeline->bin_ns()) / 1e9;
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} "
      "{1}\" font-family=\"sans-serif\" font-size=\"11\">\n"
      "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
      "<text x=\"{2}\" y=\"18\" font-size=\"13\">{3}</text>\n",
      kWidth, height, kLeft, Escape(simulation.description()));
  double top = kTop;
  for (const Panel& panel : panels) {
    DrawPanel(*timeline, panel, top, svg);
    top += kPanelHeight + kPanelGap;
  }
  fmt::format_to(std::back_inserter(svg),
                 "<text x=\"{}\" y=\"{}\">0</text>\n"
                 "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{:.4g} s</text>\n</svg>\n",
                 kLeft, height - 22.0, kWidth - kRight, height - 22.0, end_s);
  return svg;
}

}  // namespace polysil
