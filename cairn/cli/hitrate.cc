#include "cairn/cli/hitrate.h"

#include <algorithm>
#include <fstream>
#include <functional>
#include <iomanip>
#include <limits>
#include <optional>
#include <ostream>
#include <span>
#include <sstream>
#include <string_view>
#include <utility>

#include "cairn/base/json_writer.h"
#include "cairn/base/str_cat.h"
#include "cairn/cli/hitrate_page.h"
#include "cairn/cli/text.h"
#include "cairn/lab/experiment.h"
#include "cairn/manager/config_values.h"
#include "cairn/page/page.h"

namespace cairn::cli {

namespace {

constexpr int kTitleWidth = 14;
constexpr int kColumnWidth = 9;

// A number of blocks, also in tokens and bytes: blocks of `cairn replay` and of a manager have other sizes.
void write_size(JsonWriter& json, const std::string& capacity, std::uint64_t blocks, const HitrateOptions& options) {
  json.field("capacity", capacity);
  json.field("blocks", blocks);
  json.field("tokens", blocks * options.block_size);
  json.field("bytes", blocks * options.block_size * options.kv_bytes);
}

// Bounds have no tiers.
void write_json_tiers(JsonWriter& json, const lab::Row& row, const HitrateOptions& options) {
  if (row.counts.lower.empty()) {
    return;
  }
  std::uint64_t in_first = row.counts.blocks_hit;
  for (const lab::LowerTierCounts& tier : row.counts.lower) {
    in_first -= tier.hits;
  }
  json.begin_array("tiers");
  json.begin_object();
  write_size(json, row.capacity, row.blocks, options);
  json.field("hits", in_first);
  json.end_object();
  for (std::size_t i = 0; i < row.lower.size(); ++i) {
    const lab::LowerTierCounts& tier = row.counts.lower[i];
    json.begin_object();
    write_size(json, row.lower[i].capacity, row.lower[i].blocks, options);
    json.field("hits", tier.hits);
    json.field("written", tier.written);
    json.begin_object("verdicts");
    for (const Admission admission : kAllAdmissions) {
      json.field(to_string(admission), tier.verdicts[static_cast<std::size_t>(admission)]);
    }
    json.end_object();
    json.end_object();
  }
  json.end_array();
}

void write_json(std::ostream& out, std::span<const lab::Row> rows, const HitrateOptions& options) {
  constexpr int kDigits = 6;
  std::string text;
  JsonWriter json(text);
  json.begin_object();
  json.field("block_size", options.block_size);
  json.field("kv_bytes", options.kv_bytes);
  json.begin_array("rows");
  for (const lab::Row& row : rows) {
    const lab::HitCounts& counts = row.counts;
    json.line_break();
    json.begin_object();
    json.field("trace", row.trace);
    json.field("policy", row.policy);
    write_size(json, row.capacity, row.blocks, options);
    json.field("hit_ratio", counts.block_ratio(), kDigits);
    json.field("byte_hit_ratio", counts.byte_ratio(), kDigits);
    json.field("request_hit_ratio", counts.request_ratio(), kDigits);
    json.field("written_per_hit", counts.written_per_hit(), kDigits);
    json.field("requests", counts.requests);
    json.field("block_requests", counts.blocks);
    json.field("block_hits", counts.blocks_hit);
    json.field("evicted", counts.evicted);
    if (options.hints) {
      json.field("hints", true);
    }
    if (options.leaves_first) {
      json.field("leaves_first", true);
    }
    if (options.endings) {
      json.field("endings", true);
    }
    if (options.bypass) {
      json.field("bypass", true);
    }
    write_json_tiers(json, row, options);
    json.end_object();
  }
  json.line_break();
  json.end_array();
  json.end_object();
  out << text << "\n";
}

// Writes what each capacity is in blocks, tokens and GB.
void write_sizes(std::ostream& out, std::span<const lab::Row> sizes, const HitrateOptions& options) {
  const auto line = [&](std::string_view title, const std::function<std::string(const lab::Row&)>& text) {
    out << std::left << std::setw(kTitleWidth) << title << std::right;
    for (const lab::Row& row : sizes) {
      out << std::setw(kColumnWidth) << text(row);
    }
    out << "\n";
  };
  const auto tokens = [&](const lab::Row& row) { return static_cast<double>(row.blocks) * options.block_size; };
  out << "\nsizes: blocks of " << options.block_size << " tokens, with " << with_commas(options.kv_bytes)
      << " bytes of KV a token\n";
  line("capacity", [](const lab::Row& row) { return row.capacity; });
  line("blocks", [](const lab::Row& row) { return std::to_string(row.blocks); });
  line("M tokens", [&](const lab::Row& row) { return fixed(tokens(row) / 1e6, 2); });
  line("GB", [&](const lab::Row& row) { return fixed(tokens(row) * static_cast<double>(options.kv_bytes) / 1e9, 1); });
}

// Writes the table of one measure, with a row for each policy and a column for each capacity.
void write_table(std::ostream& out, std::string_view title, std::span<const lab::Row> rows, std::size_t columns,
                 const std::function<double(const lab::HitCounts&)>& measure) {
  out << "\n" << title << "\n" << std::left << std::setw(kTitleWidth) << "policy" << std::right;
  for (const lab::Row& row : rows.first(columns)) {
    out << std::setw(kColumnWidth) << row.capacity;
  }
  out << "\n" << std::left << std::setw(kTitleWidth) << "blocks" << std::right;
  for (const lab::Row& row : rows.first(columns)) {
    out << std::setw(kColumnWidth) << row.blocks;
  }
  out << std::fixed << std::setprecision(4);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (i % columns == 0) {
      out << "\n" << std::left << std::setw(kTitleWidth) << rows[i].policy << std::right;
    }
    out << std::setw(kColumnWidth) << measure(rows[i].counts);
  }
  out << "\n" << std::defaultfloat;
}

// Shows progress in one line of a terminal; does nothing elsewhere.
void show(const HitrateStreams& streams, const std::string& text) {
  if (streams.log_is_a_terminal) {
    streams.log << "\r\033[K" << text << std::flush;
  }
}

Result<lab::Trace> load(const std::string& path, std::uint32_t block_size, const HitrateStreams& streams) {
  Result<lab::Trace> trace = lab::Trace::load(path, block_size, [&](std::uint64_t bytes) {
    show(streams, str_cat(path, ": ", bytes / 1'000'000, " MB read"));
  });
  show(streams, "");
  if (trace && trace->bad_rows() > 0) {
    streams.log << path << ": left out " << with_commas(trace->bad_rows()) << " bad rows; the first is "
                << trace->first_bad_row() << "\n";
  }
  return trace;
}

// As lab::parse_capacity(), and a size in bytes: "64GB".
Result<lab::Capacity> parse_capacity(const std::string& text, const HitrateOptions& options) {
  if (!text.ends_with('B')) {
    return lab::parse_capacity(text);
  }
  const std::optional<std::uint64_t> bytes = parse_size(text);
  const std::uint64_t blocks = bytes.value_or(0) / (options.kv_bytes * options.block_size);
  if (blocks == 0 || blocks > std::numeric_limits<std::uint32_t>::max()) {
    return fail(ErrorCode::kInvalidArgument,
                str_cat("'", text, "' is not a capacity; give a size of at least one block, such as 64GB, a number of ",
                        "blocks, such as 4096, or a share of the blocks of the trace, such as 2%"));
  }
  return lab::Capacity{.text = text, .blocks = static_cast<std::uint32_t>(blocks)};
}

}  // namespace

Status run_hitrate(const HitrateOptions& options, const HitrateStreams& streams) {
  std::ostream& out = streams.out;
  CAIRN_TRY_ASSIGN(std::vector<lab::Contender> contenders, lab::parse_contenders(options.policies));
  if (options.kv_bytes == 0 || options.block_size == 0) {
    return fail(ErrorCode::kInvalidArgument, "kv-bytes or block-size is 0; give at least 1");
  }
  std::vector<lab::Capacity> capacities;
  for (const std::string& text : options.capacities) {
    CAIRN_TRY_ASSIGN(lab::Capacity capacity, parse_capacity(text, options));
    capacities.push_back(std::move(capacity));
  }
  lab::Conditions conditions{.hints = options.hints,
                             .leaves_first = options.leaves_first,
                             .endings = options.endings,
                             .bypass = options.bypass};
  for (const std::string& text : options.tiers) {
    CAIRN_TRY_ASSIGN(lab::Capacity capacity, parse_capacity(text, options));
    conditions.tiers.push_back(std::move(capacity));
  }
  CAIRN_TRY_ASSIGN(const lab::Admit admit, lab::parse_admit(options.admit));
  conditions.admit = admit;
  if (options.traces.empty() || contenders.empty() || capacities.empty()) {
    return fail(ErrorCode::kInvalidArgument, "nothing to measure; give a trace, a policy and a capacity");
  }
  const bool only_json = options.json == "-";
  std::ofstream file;
  if (!options.json.empty() && !only_json) {
    file.open(options.json);
    if (!file) {
      return fail(ErrorCode::kInvalidArgument, str_cat("cannot write ", options.json));
    }
  }
  std::ofstream page_file;
  if (!options.html.empty()) {
    page_file.open(options.html);
    if (!page_file) {
      return fail(ErrorCode::kInvalidArgument, str_cat("cannot write ", options.html));
    }
  }
  std::vector<MeasuredTrace> measured;
  std::vector<lab::Row> all;
  for (const std::string& path : options.traces) {
    CAIRN_TRY_ASSIGN(const lab::Trace trace, load(path, options.block_size, streams));
    if (options.endings && trace.known_endings() == 0) {
      return fail(
          ErrorCode::kInvalidArgument,
          str_cat(path, " does not say how requests ended; give each row a field `ending`, or leave out --endings"));
    }
    Result<std::vector<lab::Row>> rows =
        lab::measure(trace, contenders, capacities, conditions, [&](std::size_t done, std::size_t count) {
          show(streams, str_cat(path, ": ", done, " of ", count, " runs"));
          return true;
        });
    show(streams, "");
    if (!rows) {
      return Unexpected(std::move(rows).error());
    }
    if (!only_json) {
      out << path << ": " << with_commas(trace.requests().size()) << " requests, "
          << with_commas(trace.reference_count()) << " blocks requested, " << with_commas(trace.unique_blocks())
          << " of them distinct\n";
      write_sizes(out, std::span(*rows).first(capacities.size()), options);
      write_table(out, "share of the blocks that were hit, with all blocks before them", *rows, capacities.size(),
                  &lab::HitCounts::block_ratio);
      write_table(out, "share of the bytes", *rows, capacities.size(), &lab::HitCounts::byte_ratio);
      write_table(out, "share of the requests that hit at least one block", *rows, capacities.size(),
                  &lab::HitCounts::request_ratio);
      for (std::size_t tier = 0; tier < conditions.tiers.size(); ++tier) {
        write_table(out, str_cat("of those, the part that the tier of ", conditions.tiers[tier].text, " served"), *rows,
                    capacities.size(), [tier](const lab::HitCounts& counts) {
                      return counts.lower.empty() ? 0 : counts.lower_ratio(tier);
                    });
      }
      write_table(out,
                  conditions.tiers.empty() ? "blocks evicted (so written to a lower tier) for a block hit"
                                           : "blocks written to lower tiers for a block hit",
                  *rows, capacities.size(), &lab::HitCounts::written_per_hit);
      out << "\n";
    }
    measured.push_back({.name = path,
                        .requests = trace.requests().size(),
                        .blocks = trace.reference_count(),
                        .distinct = trace.unique_blocks(),
                        .block_size = options.block_size,
                        .kv_bytes = options.kv_bytes,
                        .rows = *rows});
    std::ranges::move(*rows, std::back_inserter(all));
  }
  if (!options.html.empty() && !(page_file << page::render(hitrate_page(measured, options.command)) << std::flush)) {
    return fail(ErrorCode::kExhausted, str_cat("cannot write all of ", options.html));
  }
  if (!options.json.empty()) {
    write_json(only_json ? out : file, all, options);
    if (!only_json && !file.flush()) {
      return fail(ErrorCode::kExhausted, str_cat("cannot write all of ", options.json));
    }
  }
  return {};
}

}  // namespace cairn::cli
