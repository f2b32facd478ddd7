#include "cairn/server/history.h"

#include <utility>

#include "cairn/base/json_writer.h"
#include "cairn/base/str_cat.h"

namespace cairn {

namespace {

using Sample = std::vector<std::pair<std::string, double>>;

Sample sample_of(const ManagerStatus& status, const Histogram::Summary& loads) {
  Sample sample{{"seconds", std::chrono::duration<double>(status.uptime).count()}};
  const auto add = [&sample](std::string name, auto value) {
    sample.emplace_back(std::move(name), static_cast<double>(value));
  };
  for (const TierStatus& tier : status.tiers) {
    const std::string level = to_string(tier.level);
    add(level + ".used", tier.counts.total - tier.counts.free);
    add(level + ".in_use", tier.counts.active);
    add(level + ".hits", status.onboard.hits[index_of(tier.level)]);
    add(level + ".evicted", tier.stats.evicted);
  }
  add("misses", status.onboard.misses);
  for (const LinkStatus& link : status.links) {
    add(str_cat(to_string(link.from), "-", to_string(link.to), ".bytes"), link.totals.bytes);
  }
  for (const OffloadStatus& offload : status.offload) {
    const std::string link = str_cat(to_string(offload.from), "-", to_string(offload.to));
    add(link + ".pending", offload.pending);
    add(link + ".in_flight", offload.in_flight);
  }
  add("loads", loads.count);
  add("load_seconds", loads.sum);
  add("loads_in_flight", status.onboard.loads);
  const TokenCounts tokens = status.tokens ? status.tokens->total : TokenCounts{};
  add("tokens.asked", tokens.asked);
  add("tokens.device", tokens.device);
  add("tokens.host", tokens.loaded_host);
  add("tokens.disk", tokens.loaded_disk);
  return sample;
}

}  // namespace

void History::add(const ManagerStatus& status, const Histogram::Summary& loads) {
  std::vector<double> row;
  const bool is_first = columns_.empty();
  for (auto& [name, value] : sample_of(status, loads)) {
    if (is_first) {
      columns_.push_back(std::move(name));
    }
    row.push_back(value);
  }
  rows_.push_back(std::move(row));
  if (rows_.size() > kSamples) {
    rows_.pop_front();
  }
}

std::string History::to_json(double since) const {
  std::string out;
  JsonWriter json(out);
  json.begin_object();
  json.begin_array("columns");
  for (const std::string& name : columns_) {
    json.value(name);
  }
  json.end_array();
  json.begin_array("rows");
  for (const std::vector<double>& row : rows_) {
    if (row.front() > since) {
      json.begin_array();
      for (const double value : row) {
        json.value(value, 15);
      }
      json.end_array();
    }
  }
  json.end_array();
  json.end_object();
  return out;
}

}  // namespace cairn
