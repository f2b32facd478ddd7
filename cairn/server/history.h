// History: what a manager did over the last half hour, sampled by the server, so that a page that is opened shows it at once.
//
// A sample has one number for each column: the seconds since the manager started, then gauges ("G2.used": blocks) and
// counters that only grow ("G1-G2.bytes"). The reader takes differences.
//
// Thread safety: one thread at a time.
// Complexity: 900 samples of 8 bytes a column.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "cairn/base/metrics.h"
#include "cairn/manager/manager_status.h"

namespace cairn {

class History {
 public:
  static constexpr std::size_t kSamples = 900;

  // The columns are those of the first status: tiers and links of a manager do not change.
  void add(const ManagerStatus& status, const Histogram::Summary& loads);
  // {"columns":["seconds",...],"rows":[[12.0,...],...]}: the samples later than `since` seconds, oldest first.
  [[nodiscard]] std::string to_json(double since) const;
  [[nodiscard]] std::size_t size() const { return rows_.size(); }

 private:
  std::vector<std::string> columns_;
  std::deque<std::vector<double>> rows_;
};

}  // namespace cairn
