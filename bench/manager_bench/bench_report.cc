#include "bench/manager_bench/bench_report.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <fstream>
#include <utility>

#include "cairn/base/str_cat.h"

namespace cairn::bench {

namespace {

template <typename... Values>
std::string text(const char* format, Values... values) {
  std::array<char, 256> buffer{};
  std::snprintf(buffer.data(), buffer.size(), format, values...);
  return buffer.data();
}

// "2.31 (2.10 to 2.60)"
std::string range(const Samples& samples) {
  return samples.empty() ? "-" : text("%.4g (%.4g to %.4g)", samples.median(), samples.at(0.1), samples.at(0.9));
}

std::string json(const char* name, const Samples& samples) {
  return samples.empty() ? std::string()
                         : text(R"(, "%s": %.6g, "%s_p10": %.6g, "%s_p90": %.6g)", name, samples.median(), name,
                                samples.at(0.1), name, samples.at(0.9));
}

}  // namespace

double Samples::at(double share) const {
  if (values_.empty()) {
    return 0;
  }
  std::vector<double> sorted = values_;
  std::sort(sorted.begin(), sorted.end());
  return sorted[std::min(sorted.size() - 1, static_cast<std::size_t>(share * static_cast<double>(sorted.size())))];
}

void Report::say(const std::string& line) {
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
}

void Report::add(Row row) {
  std::string line = text("%-46s %-30s %-5s", row.name.c_str(), range(row.ours).c_str(), row.unit.c_str());
  if (!row.limit.empty()) {
    line += text("  %s %s: %.3g", row.beside.c_str(), range(row.limit).c_str(), row.ours.median() / row.limit.median());
  }
  if (!row.bar.empty()) {
    line += str_cat("  [", row.bar, ": ",
                    row.reached ? *row.reached ? "reached" : "NOT reached" : "nothing to compare with", "]");
  }
  say(line);
  rows_.push_back(std::move(row));
}

bool Report::write_json(const std::string& path) const {
  std::ofstream out(path);
  out << "{\"rows\": [\n";
  for (std::size_t i = 0; i < rows_.size(); ++i) {
    const Row& row = rows_[i];
    out << "  {\"name\": \"" << row.name << "\", \"unit\": \"" << row.unit << '"' << json("value", row.ours);
    if (!row.limit.empty()) {
      out << ", \"limit_name\": \"" << row.beside << '"' << json("limit", row.limit);
    }
    if (!row.bar.empty()) {
      out << ", \"bar\": \"" << row.bar
          << "\", \"reached\": " << (row.reached ? *row.reached ? "true" : "false" : "null");
    }
    out << (i + 1 < rows_.size() ? "},\n" : "}\n");
  }
  out << "]}\n";
  out.close();
  return out.good();
}

Row at_least(double share, Row row) {
  row.bar = text("at least %.0f %%", 100 * share);
  if (!row.ours.empty() && !row.limit.empty()) {
    row.reached = row.ours.median() >= share * row.limit.median();
  }
  return row;
}

Row at_most(double times, Row row) {
  row.bar = text("at most %.0f times", times);
  if (!row.ours.empty() && !row.limit.empty()) {
    row.reached = row.ours.median() <= times * row.limit.median();
  }
  return row;
}

}  // namespace cairn::bench
