#include "cairn/page/chart.h"

#include <algorithm>
#include <map>
#include <optional>

#include "cairn/base/str_cat.h"
#include "cairn/page/html.h"
#include "cairn/page/number.h"
#include "cairn/page/plot.h"

namespace cairn::page {

namespace {

// The label of an x: that of its tick, if it has one.
std::string x_name(const Axis& axis, double x) {
  for (const Tick& tick : axis.ticks) {
    if (tick.at == x) {
      return tick.below.empty() ? tick.label : str_cat(tick.label, " (", tick.below, ")");
    }
  }
  return format(x, axis.unit);
}

struct Row {
  std::string name;
  std::string x;                                             // in the drawing
  std::vector<std::optional<std::optional<double>>> values;  // of each series: no point, a gap, or a value
};

// One row for every x of any series, by increasing x.
std::vector<Row> rows_of(const Chart& chart, const Plot& plot) {
  std::map<double, Row> rows;
  for (std::size_t i = 0; i < chart.series.size(); ++i) {
    const Series& series = chart.series[i];
    const bool bars = series.look == Series::Look::kBars;
    for (std::size_t p = 0; p + (bars ? 1 : 0) < series.points.size(); ++p) {
      const double x = series.points[p].x;
      Row& row = rows[x];
      if (row.values.empty()) {
        row.values.resize(chart.series.size());
        row.name = x_name(chart.x, x);
        row.x = plot.x_text(x);
        if (bars) {
          const double end = series.points[p + 1].x;
          row.name += str_cat(" – ", x_name(chart.x, end));
          row.x = plot.middle_text(x, end);
        }
      }
      row.values[i] = series.points[p].y;
    }
  }
  std::vector<Row> out;
  for (auto& [x, row] : rows) {
    out.push_back(std::move(row));
  }
  return out;
}

void write_legend(std::string& out, const Chart& chart) {
  out += "<div class=\"legend\" role=\"group\" aria-label=\"Series\">";
  for (std::size_t i = 0; i < chart.series.size(); ++i) {
    const Series& series = chart.series[i];
    const std::string classes = series_class(chart, i);
    // The same marker as in the drawing: the number of the colour before it wraps around.
    std::size_t shape = 0;
    for (std::size_t k = 0; k < i; ++k) {
      shape += chart.series[k].look == Series::Look::kBound ? 0 : 1;
    }
    std::string key = "<path class=\"stroke\" d=\"M1 6H25\"/>";
    if (series.look == Series::Look::kBars || series.look == Series::Look::kArea) {
      key = "<path class=\"fill\" d=\"M1 1H25V11H1z\"/><path class=\"stroke\" d=\"M1 1H25\"/>";
    } else if (series.look != Series::Look::kBound && series.points.size() <= kMostMarked) {
      key += str_cat("<path class=\"body\" d=\"", marker(13, 6, shape), "\"/>");
    }
    out += str_cat("<button type=\"button\" aria-pressed=\"true\" data-series=\"", i,
                   "\"><svg viewBox=\"0 0 26 12\" width=\"26\" height=\"12\" aria-hidden=\"true\"><g class=\"", classes,
                   "\">", key, "</g></svg>", escape(series.name), "</button>");
  }
  out += "</div>";
}

void write_data(std::string& out, const Chart& chart, const Plot& plot) {
  out += str_cat("<details class=\"data\"><summary>Table of these values</summary><div class=\"scroll\"><table>",
                 "<thead><tr><th scope=\"col\">", escape(chart.x.label), "</th>");
  for (const Series& series : chart.series) {
    out += str_cat("<th scope=\"col\">", escape(series.name), "</th>");
  }
  out += "</tr></thead><tbody>";
  for (const Row& row : rows_of(chart, plot)) {
    out += str_cat("<tr data-x=\"", row.x, "\"><th scope=\"row\">", escape(row.name), "</th>");
    for (const auto& value : row.values) {
      if (!value) {
        out += "<td></td>";
      } else if (!*value) {
        out += "<td>–</td>";
      } else {
        out += str_cat("<td data-y=\"", plot.y_text(**value), "\">", format(**value, chart.y.unit), "</td>");
      }
    }
    out += "</tr>\n";
  }
  out += "</tbody></table></div></details>";
}

}  // namespace

std::string render_chart(const Chart& chart, const std::string& id) {
  std::string out = str_cat("<figure class=\"chart", chart.width == Chart::Width::kFull ? " full" : "", "\" id=\"", id,
                            "\"><figcaption><h3>", escape(chart.title), "</h3>");
  if (!chart.note.empty()) {
    out += str_cat("<p>", escape(chart.note), "</p>");
  }
  out += "</figcaption>";
  const std::optional<Plot> plot = Plot::make(chart);
  if (!plot) {
    return out + "<p class=\"none\">No data</p></figure>\n";
  }
  if (chart.series.size() > 1) {
    write_legend(out, chart);
  }
  out += str_cat("<div class=\"plot\">", plot->svg(id), "</div><div class=\"tip\" hidden></div>");
  write_data(out, chart, *plot);
  return out + "</figure>\n";
}

}  // namespace cairn::page
