// Page: figures, charts and tables, rendered as one HTML file.
//
// The file contains its style, drawings (SVG) and a small script, and its policy forbids loading anything. It follows the
// light or dark scheme of the reader, fits phones and paper, and is complete without its script, which shows values under
// the pointer and hides series. Each chart has a table of its values. All text is escaped.
//
// Thread safety: plain values.
// Errors: none. A number that cannot be drawn (not finite, or not above 0 on a logarithmic axis) is left out of the drawing
// and stays in the table. A chart without any point says that there is no data.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cairn/page/number.h"

namespace cairn::page {

struct Tick {
  double at = 0;
  std::string label;
  std::string below = {};  // a second line, in small print
};

struct Axis {
  enum class Scale : std::uint8_t { kLinear, kLog };

  std::string label = {};
  Unit unit = Unit::kNumber;
  Scale scale = Scale::kLinear;
  // The ends of the axis; by default the ends of the data, or 0 on a linear axis of positive values.
  std::optional<double> from = {};
  std::optional<double> to = {};
  std::vector<Tick> ticks = {};  // empty: round values
};

struct Point {
  double x = 0;
  std::optional<double> y = {};  // std::nullopt: a gap in the line
};

struct Series {
  enum class Look : std::uint8_t {
    kLine,
    kThin,   // a line behind the others
    kBound,  // dashed and without a colour: a bound for the others
    kArea,   // a line with a filled area below
    kBars,   // a bar from each x to the next; the last point only ends the last bar
  };

  std::string name;
  Look look = Look::kLine;
  std::vector<Point> points = {};  // by increasing x
};

// A line across the whole chart: a capacity, a percentile.
struct Mark {
  enum class Across : std::uint8_t { kX, kY };  // kX: vertical, at an x

  Across across = Across::kX;
  double at = 0;
  std::string label;
};

struct Chart {
  enum class Width : std::uint8_t { kHalf, kFull };

  std::string title;
  std::string note = {};  // one sentence: what is drawn, and what to look for
  Axis x = {};
  Axis y = {};
  std::vector<Series> series = {};
  std::vector<Mark> marks = {};
  Width width = Width::kHalf;
};

// One important number, in large print.
struct Figure {
  std::string label;
  std::string value;
  std::string note = {};
};

struct Cell {
  enum class Look : std::uint8_t { kPlain, kBest, kWorse };

  std::string text;
  Look look = Look::kPlain;
};

// The first cell of each row names it.
struct Table {
  std::string title;
  std::string note = {};
  std::vector<std::string> head = {};
  std::vector<std::vector<Cell>> rows = {};
};

// Shows the figures first, then charts, then tables; empty lists are left out.
struct Section {
  std::string title = {};
  std::string text = {};
  std::vector<Figure> figures = {};
  std::vector<Chart> charts = {};
  std::vector<Table> tables = {};
};

struct Page {
  std::string title;
  std::string lead = {};     // what the page shows, in a sentence or two
  std::string command = {};  // the command that made the page
  std::vector<Section> sections = {};
};

[[nodiscard]] std::string render(const Page& page);

}  // namespace cairn::page
