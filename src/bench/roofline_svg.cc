#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <string_view>
#include <vector>

#include "bench/offline_report.h"

namespace polysil {
namespace {

constexpr double kWidth = 1000.0;
constexpr double kHeight = 640.0;
constexpr double kLeft = 70.0;
constexpr double kRight = 30.0;
constexpr double kTop = 64.0;
constexpr double kBottom = 54.0;
constexpr double kLabelHeight = 13.0;
constexpr double kGiga = 1e9;

struct Point {
  std::string label;
  double x = 0.0;  // operations per byte
  double y = 0.0;  // GOP/s
  bool prompt = false;
  double bound_y = 0.0;  // GOP/s at the row's bound
};

// Whole decades that hold the values.
struct Axis {
  double low;
  double high;
  double begin;  // pixels
  double end;

  Axis(double least, double most, double begin_px, double end_px)
      : low(std::floor(std::log10(least))),
        high(std::max(low + 1.0, std::ceil(std::log10(most)))),
        begin(begin_px),
        end(end_px) {}
  double At(double value) const {
    return begin + (std::log10(value) - low) / (high - low) * (end - begin);
  }
};

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

std::vector<Point> PointsOf(const OfflineReport& report) {
  std::vector<Point> points;
  for (const OfflineResult& result : report.results) {
    const double operations_a_token = result.work.operations() / result.work_tokens;
    points.push_back({.label = result.row.Name(),
                      .x = result.work.operations() / result.work.bytes,
                      .y = operations_a_token * result.Median() / kGiga,
                      .prompt = result.row.streams == 0,
                      .bound_y = operations_a_token * result.BoundRate(report.bounds) / kGiga});
  }
  return points;
}

void DrawGrid(const Axis& x, const Axis& y, std::string& svg) {
  const auto out = std::back_inserter(svg);
  for (int decade = static_cast<int>(x.low); decade <= static_cast<int>(x.high); ++decade) {
    const double at = x.At(std::pow(10.0, decade));
    fmt::format_to(out, "<path stroke=\"#ddd\" d=\"M{:.1f} {}V{}\"/>\n", at, kTop,
                   kHeight - kBottom);
    fmt::format_to(out, "<text x=\"{:.1f}\" y=\"{}\" text-anchor=\"middle\">{:g}</text>\n", at,
                   kHeight - kBottom + 16.0, std::pow(10.0, decade));
  }
  for (int decade = static_cast<int>(y.low); decade <= static_cast<int>(y.high); ++decade) {
    const double at = y.At(std::pow(10.0, decade));
    fmt::format_to(out, "<path stroke=\"#ddd\" d=\"M{} {:.1f}H{}\"/>\n", kLeft, at,
                   kWidth - kRight);
    fmt::format_to(out, "<text x=\"{}\" y=\"{:.1f}\" text-anchor=\"end\">{:g}</text>\n",
                   kLeft - 6.0, at + 4.0, std::pow(10.0, decade));
  }
  fmt::format_to(out,
                 "<text x=\"{:.0f}\" y=\"{}\" text-anchor=\"middle\">operations per byte that must "
                 "be read</text>\n<text transform=\"translate(18 {:.0f}) rotate(-90)\" "
                 "text-anchor=\"middle\">GOP/s</text>\n",
                 (kLeft + kWidth - kRight) / 2, kHeight - 14.0, (kTop + kHeight - kBottom) / 2);
}

// The slope of the memory up to a ceiling of arithmetic, and the ceiling from there on.
void DrawRoof(const Axis& x, const Axis& y, double bytes_s, const RateSamples& ceiling,
              std::string_view name, std::string_view colour, std::string& svg) {
  if (ceiling.best() == 0.0) return;
  const double ridge = ceiling.best() / bytes_s;
  const double right = std::pow(10.0, x.high);
  if (ridge >= right) return;
  const double left = std::max(ridge, std::pow(10.0, x.low));
  const auto out = std::back_inserter(svg);
  const double at = y.At(ceiling.best() / kGiga);
  fmt::format_to(out,
                 "<path fill=\"none\" stroke=\"{}\" stroke-width=\"2\" d=\"M{:.1f} {:.1f}H{}\"/>\n"
                 "<text x=\"{}\" y=\"{:.1f}\" text-anchor=\"end\" fill=\"{}\">{} {:.0f}</text>\n",
                 colour, x.At(left), at, kWidth - kRight, kWidth - kRight - 4.0, at - 6.0, colour,
                 name, ceiling.best() / kGiga);
}

void DrawMemoryRoof(const Axis& x, const Axis& y, const CpuBounds& bounds, std::string& svg) {
  const double bytes_s = bounds.read_all.best();
  const double ceiling = std::max(bounds.int8_operations.best(), bounds.float_operations.best());
  const double left = std::max(std::pow(10.0, x.low), std::pow(10.0, y.low) * kGiga / bytes_s);
  double right = std::min(std::pow(10.0, x.high), std::pow(10.0, y.high) * kGiga / bytes_s);
  if (ceiling > 0.0) right = std::min(right, ceiling / bytes_s);
  const double middle = std::sqrt(left * right);
  const double angle = std::atan2(y.At(left * bytes_s / kGiga) - y.At(right * bytes_s / kGiga),
                                  x.At(right) - x.At(left));
  const auto out = std::back_inserter(svg);
  fmt::format_to(
      out, "<path stroke=\"#2c3e50\" stroke-width=\"2\" d=\"M{:.1f} {:.1f}L{:.1f} {:.1f}\"/>\n",
      x.At(left), y.At(left * bytes_s / kGiga), x.At(right), y.At(right * bytes_s / kGiga));
  fmt::format_to(out,
                 "<text transform=\"translate({:.1f} {:.1f}) rotate({:.1f})\" "
                 "text-anchor=\"middle\" fill=\"#2c3e50\">memory {:.1f} GB/s</text>\n",
                 x.At(middle) - 5.0, y.At(middle * bytes_s / kGiga) - 8.0,
                 -angle * 180.0 / 3.14159265358979, bytes_s / kGiga);
}

// Labels stand right of their points, moved down where one stands already.
void DrawPoints(const Axis& x, const Axis& y, std::vector<Point> points, std::string& svg) {
  std::ranges::stable_sort(points, std::greater<>(), &Point::y);
  const auto out = std::back_inserter(svg);
  struct Label {
    double left, right, at;
  };
  std::vector<Label> labels;
  for (const Point& point : points) {
    const double px = x.At(point.x);
    const double py = y.At(point.y);
    const double width = 6.2 * static_cast<double>(point.label.size());
    const bool leftwards = px + 16.0 + width > kWidth - kRight;
    Label label{.left = leftwards ? px - 16.0 - width : px + 16.0, .right = 0.0, .at = py + 4.0};
    label.right = label.left + width;
    const auto taken = [&](const Label& other) {
      return other.left < label.right && label.left < other.right &&
             std::abs(other.at - label.at) < kLabelHeight;
    };
    while (std::ranges::any_of(labels, taken)) label.at += 1.0;
    labels.push_back(label);
    const std::string_view colour = point.prompt ? "#c0392b" : "#2980b9";
    fmt::format_to(out,
                   "<path stroke=\"{}\" stroke-opacity=\"0.35\" d=\"M{:.1f} {:.1f}V{:.1f}\"/>\n"
                   "<path stroke=\"{}\" d=\"M{:.1f} {:.1f}h8\"/>\n",
                   colour, px, py, y.At(point.bound_y), colour, px - 4.0, y.At(point.bound_y));
    fmt::format_to(out, "<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"4\" fill=\"{}\"/>\n", px, py,
                   colour);
    fmt::format_to(out, "<path stroke=\"#999\" d=\"M{:.1f} {:.1f}L{:.1f} {:.1f}\"/>\n",
                   px + (leftwards ? -5.0 : 5.0), py,
                   leftwards ? label.right + 2.0 : label.left - 2.0, label.at - 4.0);
    fmt::format_to(out, "<text x=\"{:.1f}\" y=\"{:.1f}\" fill=\"{}\">{}</text>\n", label.left,
                   label.at, colour, Escape(point.label));
  }
}

}  // namespace

std::string RooflineSvgOf(const OfflineReport& report) {
  const CpuBounds& bounds = report.bounds;
  const std::vector<Point> points = PointsOf(report);
  double x_least = 1.0, x_most = 100.0;
  double y_least = 10.0, y_most = 100.0;
  for (const Point& point : points) {
    x_least = std::min(x_least, point.x);
    x_most = std::max(x_most, point.x);
    y_least = std::min(y_least, point.y);
    y_most = std::max({y_most, point.y, point.bound_y});
  }
  y_most = std::max(
      {y_most, bounds.int8_operations.best() / kGiga, bounds.float_operations.best() / kGiga});
  const Axis x(x_least, x_most, kLeft, kWidth - kRight);
  const Axis y(y_least, y_most * 1.1, kHeight - kBottom, kTop);
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} "
      "{1}\" font-family=\"sans-serif\" font-size=\"11\">\n"
      "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
      "<text x=\"{2}\" y=\"20\" font-size=\"14\">{3}, {4}</text>\n"
      "<text x=\"{2}\" y=\"38\" fill=\"#555\">{5}; red: prompts, blue: generation; the dash above "
      "a "
      "point is its bound</text>\n",
      kWidth, kHeight, kLeft, Escape(report.model), Escape(report.weight_types),
      Escape(report.device));
  DrawGrid(x, y, svg);
  DrawMemoryRoof(x, y, bounds, svg);
  DrawRoof(x, y, bounds.read_all.best(), bounds.int8_operations, "int8 GOP/s", "#16a085", svg);
  DrawRoof(x, y, bounds.read_all.best(), bounds.float_operations, "fp32 GFLOP/s", "#8e44ad", svg);
  DrawPoints(x, y, points, svg);
  svg += "</svg>\n";
  return svg;
}

}  // namespace polysil
