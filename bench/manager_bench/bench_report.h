// The report of manager_bench, as text and JSON: each figure beside its limit, measured in the same run.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace cairn::bench {

// Measurements of one quantity.
class Samples {
 public:
  void add(double value) { values_.push_back(value); }
  [[nodiscard]] bool empty() const { return values_.empty(); }
  [[nodiscard]] double at(double share) const;  // 0: minimum, 0.5: median, 1: maximum
  [[nodiscard]] double median() const { return at(0.5); }

 private:
  std::vector<double> values_;
};

struct Row {
  std::string name;
  std::string unit;
  Samples ours = {};
  std::string beside = {};  // what `limit` is
  Samples limit = {};
  std::string bar = {};              // "at least 85 %"; empty if there is no target
  std::optional<bool> reached = {};  // std::nullopt: nothing to compare with
};

class Report {
 public:
  // Also prints the row.
  void add(Row row);
  void say(const std::string& line);
  // False if the file cannot be written.
  [[nodiscard]] bool write_json(const std::string& path) const;

 private:
  std::vector<Row> rows_;
};

// A row whose target is a fraction (a multiple) of the limit: the ratio of the medians is at least `share` (at most
// `times`).
[[nodiscard]] Row at_least(double share, Row row);
[[nodiscard]] Row at_most(double times, Row row);

}  // namespace cairn::bench
