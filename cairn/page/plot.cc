#include "cairn/page/plot.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

#include "cairn/base/str_cat.h"
#include "cairn/page/html.h"

namespace cairn::page {

namespace {

constexpr double kHalfWidth = 560;
constexpr double kFullWidth = 1160;
constexpr double kHalfHeight = 300;
constexpr double kFullHeight = 360;
constexpr double kCharacter = 6.8;  // approximate width of a character of a tick label

std::string coordinate(double value) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.1f", value);
  return text.data();
}

std::string place(double x, double y) { return coordinate(x) + " " + coordinate(y); }

// The length in characters: every UTF-8 byte but continuation bytes starts one.
double text_width(const std::string& text) {
  return kCharacter * static_cast<double>(std::ranges::count_if(
                          text, [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

bool is_bars(const Series& series) { return series.look == Series::Look::kBars; }

// How many series before `index` have a colour.
std::size_t colour_of(const Chart& chart, std::size_t index) {
  return static_cast<std::size_t>(
      std::count_if(chart.series.begin(), chart.series.begin() + static_cast<std::ptrdiff_t>(index),
                    [](const Series& series) { return series.look != Series::Look::kBound; }));
}

void text_at(std::string& out, const char* classes, const std::string& where, const std::string& text) {
  out += str_cat("<text class=\"", classes, "\" ", where, ">", escape(text), "</text>");
}

std::string xy(double x, double y) { return str_cat("x=\"", coordinate(x), "\" y=\"", coordinate(y), "\""); }

std::string segment(const char* classes, double x1, double y1, double x2, double y2) {
  return str_cat("<path class=\"", classes, "\" d=\"M", place(x1, y1), "L", place(x2, y2), "\"/>");
}

}  // namespace

std::string series_class(const Chart& chart, std::size_t index) {
  const Series& series = chart.series[index];
  const std::string colour = str_cat(" c", colour_of(chart, index) % kColours);
  switch (series.look) {
    case Series::Look::kLine:
      return "series line" + colour;
    case Series::Look::kThin:
      return "series line thin" + colour;
    case Series::Look::kBound:
      return "series line bound";
    case Series::Look::kArea:
      return "series line area" + colour;
    case Series::Look::kBars:
      return "series bars" + colour;
  }
  return {};
}

std::string marker(double x, double y, std::size_t shape) {
  const auto m = [&](double dx, double dy) { return place(x + dx, y + dy); };
  switch (shape % kMarkers) {
    case 0:  // circle
      return str_cat("M", m(-3.5, 0), "a3.5 3.5 0 1 0 7 0a3.5 3.5 0 1 0 -7 0z");
    case 1:  // square
      return str_cat("M", m(-3.2, -3.2), "h6.4v6.4h-6.4z");
    case 2:  // triangle
      return str_cat("M", m(0, -4.4), "L", m(4.2, 3.2), "L", m(-4.2, 3.2), "z");
    case 3:  // diamond
      return str_cat("M", m(0, -4.6), "L", m(4.6, 0), "L", m(0, 4.6), "L", m(-4.6, 0), "z");
    default:  // triangle on its tip
      return str_cat("M", m(0, 4.4), "L", m(4.2, -3.2), "L", m(-4.2, -3.2), "z");
  }
}

std::optional<Plot> Plot::make(const Chart& chart) {
  Extent xs;
  Extent ys;
  for (const Series& series : chart.series) {
    for (const Point& point : series.points) {
      // The last point of bars has an x, but nothing is drawn there.
      if (point.y || is_bars(series)) {
        xs.add(point.x, chart.x);
      }
      if (point.y) {
        ys.add(*point.y, chart.y);
      }
    }
  }
  if (xs.empty() || ys.empty()) {
    return std::nullopt;
  }
  for (const Mark& mark : chart.marks) {
    if (mark.across == Mark::Across::kY) {
      ys.add(mark.at, chart.y);
    }
  }
  const bool full = chart.width == Chart::Width::kFull;
  const bool below = std::ranges::any_of(chart.x.ticks, [](const Tick& tick) { return !tick.below.empty(); });
  Box box{.width = full ? kFullWidth : kHalfWidth,
          .height = full ? kFullHeight : kHalfHeight,
          .left = 0,
          .right = 0,
          .top = 30,
          .bottom = below ? 62.0 : 48.0};
  box.bottom = box.height - box.bottom;
  // Ticks do not depend on the position of the axis, so the space for their labels can be measured first.
  Scale y(chart.y, ys, box.bottom, box.top, full ? 7 : 5);
  double widest = 0;
  for (const Tick& tick : y.ticks()) {
    widest = std::max(widest, text_width(tick.label));
  }
  box.left = std::max(28.0, widest + 12);
  box.right = box.width - 18;
  return Plot(chart, box, Scale(chart.x, xs, box.left, box.right, full ? 12 : 7), std::move(y));
}

std::string Plot::x_text(double value) const {
  const std::optional<double> x = x_.at(value);
  return x ? coordinate(*x) : "";
}

std::string Plot::y_text(double value) const {
  const std::optional<double> y = y_.at(value);
  return y ? coordinate(*y) : "";
}

std::string Plot::middle_text(double from, double to) const {
  const std::optional<double> a = x_.at(from);
  const std::optional<double> b = x_.at(to);
  return a && b ? coordinate((*a + *b) / 2) : b ? coordinate((box_.left + *b) / 2) : "";
}

double Plot::baseline() const { return y_.at(0).value_or(box_.bottom); }

void Plot::draw_axes(std::string& out) const {
  out += "<g class=\"axes\">";
  for (const Tick& tick : y_.ticks()) {
    if (const std::optional<double> y = y_.at(tick.at)) {
      out += segment(tick.at == 0 ? "zero" : "grid", box_.left, *y, box_.right, *y);
      text_at(out, "tick end", xy(box_.left - 7, *y + 4), tick.label);
    }
  }
  double taken = 0;  // where the last label below ends
  for (const Tick& tick : x_.ticks()) {
    const std::optional<double> x = x_.at(tick.at);
    if (!x) {
      continue;
    }
    const double half = std::max(text_width(tick.label), text_width(tick.below) * 0.85) / 2;
    const double middle = std::clamp(*x, half, box_.width - half);
    if (middle - half < taken) {
      continue;
    }
    taken = middle + half + 4;
    out += segment("nick", *x, box_.bottom, *x, box_.bottom + 5);
    text_at(out, "tick middle", xy(middle, box_.bottom + 20), tick.label);
    if (!tick.below.empty()) {
      text_at(out, "tick middle small", xy(middle, box_.bottom + 34), tick.below);
    }
  }
  out += segment("edge", box_.left, box_.bottom, box_.right, box_.bottom);
  text_at(out, "label", xy(4, 14), y_.label());
  text_at(out, "label end", xy(box_.right, box_.height - 6), x_.label());
  out += "</g>";
}

void Plot::draw_mark(std::string& out, const Mark& mark) const {
  const bool upright = mark.across == Mark::Across::kX;
  const std::optional<double> at = upright ? x_.at(mark.at) : y_.at(mark.at);
  if (!at) {
    return;
  }
  if (upright) {
    // Beside the line, on the side where there is room.
    const bool left = *at + text_width(mark.label) + 8 > box_.right;
    out += segment("mark", *at, box_.top - 6, *at, box_.bottom);
    text_at(out, left ? "marked end" : "marked", xy(*at + (left ? -4 : 4), box_.top + 2), mark.label);
  } else {
    out += segment("mark", box_.left, *at, box_.right, *at);
    text_at(out, "marked end", xy(box_.right, *at - 5), mark.label);
  }
}

void Plot::draw_bars(std::string& out, const Series& series) const {
  const double base = baseline();
  out += "<path class=\"body\" d=\"";
  for (std::size_t i = 0; i + 1 < series.points.size(); ++i) {
    const std::optional<double> from = x_.at(series.points[i].x);
    const std::optional<double> to = x_.at(series.points[i + 1].x);
    const std::optional<double> top = series.points[i].y ? y_.at(*series.points[i].y) : std::nullopt;
    if (!to || !top || *top == base) {
      continue;
    }
    const double left = from.value_or(box_.left);  // a bar from 0 on a logarithmic axis
    const double gap = *to - left > 5 ? 1 : 0;
    out +=
        str_cat("M", place(left, base), "V", coordinate(*top), "H", coordinate(*to - gap), "V", coordinate(base), "z");
  }
  out += "\"/>";
}

void Plot::draw_steps(std::string& out, const Series& series) const {
  const double base = baseline();
  std::string path;
  for (std::size_t i = 0; i + 1 < series.points.size(); ++i) {
    const std::optional<double> from = x_.at(series.points[i].x);
    const std::optional<double> to = x_.at(series.points[i + 1].x);
    if (!to) {
      continue;
    }
    const std::optional<double> top = series.points[i].y ? y_.at(*series.points[i].y) : std::nullopt;
    if (path.empty()) {
      path = str_cat("M", place(from.value_or(box_.left), base));
    }
    path += str_cat("V", coordinate(top.value_or(base)), "H", coordinate(*to));
  }
  if (!path.empty()) {
    path += str_cat("V", coordinate(base));
  }
  out += str_cat("<path class=\"fill\" d=\"", path, "\"/><path class=\"stroke\" d=\"", path, "\"/>");
}

void Plot::draw_line(std::string& out, const Series& series, std::size_t shape) const {
  const bool marked = series.points.size() <= kMostMarked && series.look != Series::Look::kBound;
  std::string line;
  std::string area;
  std::string markers;
  std::size_t run = 0;  // points since the line was broken
  double last = 0;
  const auto end_run = [&] {
    if (run == 1) {
      line += "h0";  // a line of length 0, drawn as a dot by its round ends
    }
    if (run > 0) {
      area += str_cat("L", place(last, baseline()), "z");
    }
    run = 0;
  };
  for (const Point& point : series.points) {
    const std::optional<double> x = x_.at(point.x);
    const std::optional<double> y = point.y ? y_.at(*point.y) : std::nullopt;
    if (!x || !y) {
      end_run();
      continue;
    }
    line += str_cat(run == 0 ? "M" : "L", place(*x, *y));
    area += run == 0 ? str_cat("M", place(*x, baseline()), "L", place(*x, *y)) : str_cat("L", place(*x, *y));
    markers += marked ? marker(*x, *y, shape) : "";
    last = *x;
    ++run;
  }
  end_run();
  if (series.look == Series::Look::kArea) {
    out += str_cat("<path class=\"fill\" d=\"", area, "\"/>");
  }
  out += str_cat("<path class=\"stroke\" d=\"", line, "\"/>");
  if (!markers.empty()) {
    out += str_cat("<path class=\"body\" d=\"", markers, "\"/>");
  }
}

void Plot::draw_series(std::string& out, std::size_t index) const {
  const Series& series = chart_->series[index];
  out += str_cat("<g class=\"", series_class(*chart_, index), "\" data-series=\"", index, "\">");
  if (!is_bars(series)) {
    draw_line(out, series, colour_of(*chart_, index));
  } else if (std::ranges::count_if(chart_->series, is_bars) == 1) {
    draw_bars(out, series);
  } else {
    draw_steps(out, series);
  }
  out += "</g>";
}

std::string Plot::svg(const std::string& id) const {
  std::string names;
  for (const Series& series : chart_->series) {
    names += (names.empty() ? "" : ", ") + series.name;
  }
  std::string out =
      str_cat("<svg viewBox=\"0 0 ", coordinate(box_.width), " ", coordinate(box_.height),
              "\" role=\"img\" tabindex=\"0\" aria-labelledby=\"", id, "-name\" aria-describedby=\"", id,
              "-text\" data-top=\"", coordinate(box_.top), "\" data-bottom=\"", coordinate(box_.bottom),
              "\"><title id=\"", id, "-name\">", escape(chart_->title), "</title><desc id=\"", id, "-text\">",
              escape(str_cat(chart_->y.label, " over ", chart_->x.label, ": ", names)), "</desc>");
  draw_axes(out);
  // The first series are the most important ones, so they are drawn last; bounds are drawn first.
  for (const bool bounds : {true, false}) {
    for (std::size_t i = chart_->series.size(); i-- > 0;) {
      if ((chart_->series[i].look == Series::Look::kBound) == bounds) {
        draw_series(out, i);
      }
    }
  }
  for (const Mark& mark : chart_->marks) {
    draw_mark(out, mark);
  }
  return out + "<g class=\"cursor\"></g></svg>";
}

}  // namespace cairn::page
