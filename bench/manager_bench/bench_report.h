// What manager_bench found out, for people and for programs: each figure beside what bounds it, in the same run.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace cairn::bench {

// Measurements of one thing.
class Samples {
 public:
  void add(double value) { values_.push_back(value); }
  [[nodiscard]] bool empty() const { return values_.empty(); }
  [[nodiscard]] double at(double share) const;  // 0: the least, 0.5: the median, 1: the most
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
  std::string bar = {};              // "at least 85 %"; empty: for information
  std::optional<bool> reached = {};  // none: nothing to compare with
};

class Report {
 public:
  // Prints it, too.
  void add(Row row);
  void say(const std::string& line);
  // False: it could not be written.
  [[nodiscard]] bool write_json(const std::string& path) const;

 private:
  std::vector<Row> rows_;
};

// A row whose bar is a share of the limit: ours / limit of the medians, at least (or at most) `share`.
[[nodiscard]] Row at_least(double share, Row row);
[[nodiscard]] Row at_most(double times, Row row);

}  // namespace cairn::bench
