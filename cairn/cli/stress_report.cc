#include "cairn/cli/stress_report.h"

#include <unistd.h>

#include <fstream>
#include <iomanip>
#include <ostream>
#include <sstream>

#include <nlohmann/json.hpp>

#include "cairn/base/str_cat.h"
#include "cairn/cli/text.h"

namespace cairn::cli {

namespace {

std::string link_name(CacheLevel from, CacheLevel to) { return str_cat(to_string(from), "-", to_string(to)); }

double share(std::uint64_t part, std::uint64_t all) {
  return all == 0 ? 0 : 100.0 * static_cast<double>(part) / static_cast<double>(all);
}

nlohmann::json as_json(const StressReport& report, const ManagerStatus& status, const Metrics& metrics,
                       const StressCounts& counts) {
  nlohmann::json json{{"seconds", report.seconds},
                      {"requests", counts.requests.load()},
                      {"blocks_requested", counts.requested.load()},
                      {"blocks_verified", counts.verified.load()},
                      {"blocks_registered", counts.registered.load()},
                      {"refused", counts.refused.load()},
                      {"cancelled", counts.cancelled.load()},
                      {"resets", counts.resets.load()},
                      {"drained", report.drained},
                      {"leaked", report.leaked},
                      {"resident_bytes_early", report.resident_bytes_early},
                      {"resident_bytes", report.resident_bytes},
                      {"recovered", {{"verified", report.recovered.blocks}, {"refused", report.recovered.refused}}},
                      {"wrong", report.wrong},
                      {"tiers", nlohmann::json::array()},
                      {"links", nlohmann::json::array()},
                      {"incidents", nlohmann::json::array()}};
  for (const TierStatus& tier : status.tiers) {
    json["tiers"].push_back({{"tier", to_string(tier.level)},
                             {"place", tier.place},
                             {"blocks", tier.counts.total},
                             {"registered", tier.counts.registered},
                             {"active", tier.counts.active},
                             {"quarantined", tier.counts.quarantined},
                             {"evicted", tier.stats.evicted},
                             {"hits", status.onboard.hits[index_of(tier.level)]}});
  }
  for (const LinkStatus& link : status.links) {
    json["links"].push_back({{"link", link_name(link.from, link.to)},
                             {"blocks", link.totals.blocks},
                             {"bytes", link.totals.bytes},
                             {"busy_seconds", std::chrono::duration<double>(link.totals.busy).count()},
                             {"failed", link.totals.failed},
                             {"mismatched", link.totals.mismatched},
                             {"expired", link.totals.expired},
                             {"cancelled", link.totals.cancelled},
                             {"executor", link.executor}});
  }
  for (const Incident& incident : status.incidents) {
    json["incidents"].push_back(
        {{"kind", to_string(incident.kind)}, {"tier", to_string(incident.level)}, {"text", incident.text}});
  }
  for (const Metrics::Sample& sample : metrics.snapshot()) {
    if (sample.name == "cairn_load_seconds") {
      json["load_seconds"] = {{"p50", sample.histogram.p50}, {"p99", sample.histogram.p99}};
    }
  }
  return json;
}

}  // namespace

std::uint64_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  std::uint64_t all = 0;
  std::uint64_t resident = 0;
  file >> all >> resident;
  return resident * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
}

std::string StressProgress::line(double seconds) {
  const ManagerStatus status = manager_.status();
  const double passed = seconds - last_seconds_;
  const std::uint64_t requests = traffic_.counts().requests;
  std::ostringstream out;
  out << std::setw(5) << fixed(seconds, 0) << " s  " << std::setw(8)
      << with_commas(static_cast<std::uint64_t>(static_cast<double>(requests - last_requests_) / passed))
      << " requests/s  hit";
  std::uint64_t found = status.onboard.misses;
  for (const std::uint64_t hits : status.onboard.hits) {
    found += hits;
  }
  for (const TierStatus& tier : status.tiers) {
    out << ' ' << to_string(tier.level) << ' ' << std::setw(5)
        << fixed(share(status.onboard.hits[index_of(tier.level)], found), 1) << " %";
  }
  for (const LinkStatus& link : status.links) {
    std::uint64_t& last = last_bytes_[{link.from, link.to}];
    out << "  " << link_name(link.from, link.to) << ' '
        << fixed(static_cast<double>(link.totals.bytes - last) / passed / 1e9, 2);
    last = link.totals.bytes;
  }
  out << " GB/s  incidents " << status.incident_count;
  last_seconds_ = seconds;
  last_requests_ = requests;
  return out.str();
}

void write_stress_report(const StressReport& report, const KvBlockManager& manager, const StressCounts& counts,
                         std::ostream& out) {
  const ManagerStatus status = manager.status();
  if (report.options.json) {
    out << as_json(report, status, manager.metrics(), counts).dump(2) << "\n";
    return;
  }
  out << "\n"
      << with_commas(counts.requests) << " requests in " << fixed(report.seconds, 1) << " s; "
      << with_commas(counts.requested) << " blocks requested, " << with_commas(counts.verified)
      << " read and verified, " << with_commas(counts.registered) << " filled and registered\n\n"
      << "tier      blocks  registered       evicted          hits  health\n";
  for (const TierStatus& tier : status.tiers) {
    out << std::left << std::setw(4) << to_string(tier.level) << std::right << std::setw(12)
        << with_commas(tier.counts.total) << std::setw(12) << with_commas(tier.counts.registered) << std::setw(14)
        << with_commas(tier.stats.evicted) << std::setw(14) << with_commas(status.onboard.hits[index_of(tier.level)])
        << "  "
        << (tier.reading.is_up ? (tier.writing.is_up ? "up" : "not written to: " + tier.writing.reason)
                               : "out: " + tier.reading.reason)
        << ", " << tier.place << "\n";
  }
  out << "\nlink          blocks          GB   GB/s busy      failed  wrong      late\n";
  for (const LinkStatus& link : status.links) {
    const double busy = std::chrono::duration<double>(link.totals.busy).count();
    const double gigabytes = static_cast<double>(link.totals.bytes) / 1e9;
    out << std::left << std::setw(6) << link_name(link.from, link.to) << std::right << std::setw(14)
        << with_commas(link.totals.blocks) << std::setw(12) << fixed(gigabytes, 2) << std::setw(12)
        << fixed(busy > 0 ? gigabytes / busy : 0, 2) << std::setw(12) << with_commas(link.totals.failed) << std::setw(7)
        << with_commas(link.totals.mismatched) << std::setw(10) << with_commas(link.totals.expired) << "\n";
  }
  for (const Incident& incident : status.incidents) {
    out << "\n" << to_string(incident.kind) << ", " << to_string(incident.level) << ": " << incident.text;
  }
  out << (status.incidents.empty() ? "\n" : "\n\n");
  out << "memory of the process: " << with_commas(report.resident_bytes_early >> 20) << " MiB early, "
      << with_commas(report.resident_bytes >> 20) << " MiB at the end\n";
  if (!report.drained) {
    out << "NOT DRAINED: transfers or requests are still in flight\n";
  } else if (report.leaked > 0) {
    out << "LEAKED: " << with_commas(report.leaked) << " blocks are in use or quarantined without a holder\n";
  }
  out << (report.wrong.empty() ? "no wrong byte\n" : "WRONG BYTES: " + report.wrong + "\n");
}

}  // namespace cairn::cli
