// Page: figures, charts and tables as one HTML page that needs nothing but a browser.
//
// Does:     render() makes a single file: style, drawings (SVG) and a small script are inside, and the page forbids
//           itself to load anything. It follows the light or dark scheme of its reader, fits phones and paper, and is
//           whole without its script, which adds values under the pointer and lets series be switched off. Under each
//           chart lies a table of what it shows. All text is escaped: names of files and settings may hold anything.
// Threads:  plain values.
// Fails:    never. What cannot be drawn is left out of the drawing: a number that is not finite, or one that is not
//           above 0 on a logarithmic axis. The table keeps it. A chart without any point says that there is no data.
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
  std::string below = {};  // a second line, in small
};

struct Axis {
  enum class Scale : std::uint8_t { kLinear, kLog };

  std::string label = {};
  Unit unit = Unit::kNumber;
  Scale scale = Scale::kLinear;
  // Where the axis ends; what is not given is where the data end, and 0 on a linear axis of positive values.
  std::optional<double> from = {};
  std::optional<double> to = {};
  std::vector<Tick> ticks = {};  // empty: round values
};

struct Point {
  double x = 0;
  std::optional<double> y = {};  // none: the line is broken here
};

struct Series {
  enum class Look : std::uint8_t {
    kLine,
    kThin,   // a line that stands back behind the others
    kBound,  // dashed, without a colour: what the others are measured against
    kArea,   // a line with the space below it filled
    kBars,   // each bar from its point's x to that of the next; the last point only ends the one before
  };

  std::string name;
  Look look = Look::kLine;
  std::vector<Point> points = {};  // by rising x
};

// A line across the whole chart: a capacity, a percentile.
struct Mark {
  enum class Across : std::uint8_t { kX, kY };  // kX: upright, at an x

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

// One number that matters, in large.
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

// What is empty is left out. Figures stand first, then charts, then tables.
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
  std::string command = {};  // that made it, so that others can make it again
  std::vector<Section> sections = {};
};

[[nodiscard]] std::string render(const Page& page);

}  // namespace cairn::page
