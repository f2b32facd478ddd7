// Plot: computes the positions in a chart's drawing. The drawing and the table that the script reads positions from both
// use it, so that they agree.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cairn/page/page.h"
#include "cairn/page/scale.h"

namespace cairn::page {

class Plot {
 public:
  // std::nullopt if nothing of the chart can be drawn.
  [[nodiscard]] static std::optional<Plot> make(const Chart& chart);

  // The whole drawing, as an SVG element.
  [[nodiscard]] std::string svg(const std::string& id) const;

  // "12.5": the position of a value; "" if it cannot be drawn.
  [[nodiscard]] std::string x_text(double value) const;
  [[nodiscard]] std::string y_text(double value) const;
  // The middle of a bar.
  [[nodiscard]] std::string middle_text(double from, double to) const;

 private:
  struct Box {
    double width, height, left, right, top, bottom;
  };

  Plot(const Chart& chart, const Box& box, Scale x, Scale y)
      : chart_(&chart), box_(box), x_(std::move(x)), y_(std::move(y)) {}

  void draw_axes(std::string& out) const;
  void draw_mark(std::string& out, const Mark& mark) const;
  void draw_series(std::string& out, std::size_t index) const;
  void draw_bars(std::string& out, const Series& series) const;
  void draw_steps(std::string& out, const Series& series) const;
  void draw_line(std::string& out, const Series& series, std::size_t shape) const;
  [[nodiscard]] double baseline() const;

  const Chart* chart_;
  Box box_;
  Scale x_;
  Scale y_;
};

// The classes of a series for the style sheet: "series thin c3". Bounds have no colour and take no number.
[[nodiscard]] std::string series_class(const Chart& chart, std::size_t index);
// The path of a marker at a position. With kMarkers markers and kColours colours no two of forty series look the same,
// also to readers who cannot tell the colours apart.
[[nodiscard]] std::string marker(double x, double y, std::size_t shape);
inline constexpr std::size_t kMarkers = 5;
inline constexpr std::size_t kColours = 8;
// Lines with more points are drawn without markers.
inline constexpr std::size_t kMostMarked = 24;

}  // namespace cairn::page
