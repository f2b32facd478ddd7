// Trace files, hit rates and replays: what python/cairn/traces.py and python/cairn/experiments.py call.
#include <nanobind/operators.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <iterator>
#include <mutex>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "cairn/base/str_cat.h"
#include "cairn/cli/replay_report.h"
#include "cairn/cli/replay_settings.h"
#include "cairn/cli/trace_output.h"
#include "cairn/cli/trace_source.h"
#include "cairn/lab/experiment.h"
#include "cairn/sim/replay.h"
#include "cairn/trace/trace_file.h"
#include "cairn/trace/workload.h"
#include "python/src/binding.h"
#include "python/src/interruptible.h"
#include "python/src/record.h"

namespace cairn::python {
namespace {

using trace::TraceRow;

// cairn.traces.TraceReader: reads rows ahead, without the GIL.
class TraceReader {
 public:
  explicit TraceReader(trace::TraceFile file) : file_(std::move(file)) {}

  // The next row; std::nullopt at the end. Errors: kCorrupt if the file cannot be read on.
  [[nodiscard]] Result<std::optional<TraceRow>> next() {
    const std::scoped_lock lock(mutex_);
    if (at_ == rows_.size()) {
      CAIRN_TRY(read_ahead());
    }
    return at_ < rows_.size() ? std::optional(std::move(rows_[at_++])) : std::nullopt;
  }
  [[nodiscard]] bool has_next_row() const {
    const std::scoped_lock lock(mutex_);
    return at_ < rows_.size();
  }
  // The invalid rows so far, which were left out, and the first of them.
  [[nodiscard]] std::pair<std::uint64_t, std::string> bad_rows() const {
    const std::scoped_lock lock(mutex_);
    return {bad_rows_, first_bad_row_};
  }

 private:
  Status read_ahead() {
    constexpr std::size_t kRows = 256;
    rows_.clear();
    at_ = 0;
    TraceRow row;
    while (rows_.size() < kRows) {
      switch (file_.next(row)) {
        case trace::TraceFile::Next::kRow:
          rows_.push_back(std::move(row));
          row = TraceRow();
          break;
        case trace::TraceFile::Next::kBadRow:
          if (bad_rows_++ == 0) {
            first_bad_row_ = file_.error();
          }
          break;
        case trace::TraceFile::Next::kEnd:
          return {};
        case trace::TraceFile::Next::kBroken:
          return fail(ErrorCode::kCorrupt, str_cat(file_.path(), ": ", file_.error()));
      }
    }
    return {};
  }

  mutable std::mutex mutex_;
  trace::TraceFile file_;
  std::vector<TraceRow> rows_;
  std::size_t at_ = 0;
  std::uint64_t bad_rows_ = 0;
  std::string first_bad_row_;
};
using Reader = OfProcess<TraceReader>;

Reader open_trace(const std::string& path) {
  Result<trace::TraceFile> file = [&] {
    const GilRelease released;
    return trace::TraceFile::open(path);
  }();
  return Reader(value_or_raise(std::move(file)));
}

TraceRow next_row(const Reader& reader) {
  TraceReader& rows = reader.get();
  Result<std::optional<TraceRow>> row = [&] {
    const ReleaseGilIf gil(!rows.has_next_row());
    return rows.next();
  }();
  std::optional<TraceRow> read = value_or_raise(std::move(row));
  if (!read) {
    throw nb::stop_iteration();
  }
  return *std::move(read);
}

std::vector<TraceRow> generate(std::string_view kind, std::uint32_t requests, std::uint32_t block_size,
                               std::uint64_t seed, std::uint32_t loop_blocks) {
  const std::optional<trace::WorkloadKind> known = trace::parse_workload(kind);
  if (!known) {
    raise(ErrorCode::kInvalidArgument,
          str_cat("unknown kind of traffic '", kind, "' (expected ", cli::workload_names(), ")"));
  }
  if (requests == 0 || block_size == 0 || loop_blocks == 0) {
    raise(ErrorCode::kInvalidArgument, "requests, block_size and loop_blocks must be at least 1");
  }
  std::vector<TraceRow> rows;
  const GilRelease released;
  trace::generate(
      {.kind = *known, .requests = requests, .block_size = block_size, .loop_blocks = loop_blocks, .seed = seed},
      [&](const TraceRow& row) { rows.push_back(row); });
  return rows;
}

void bind_rows(nb::module_& module) {
  nb::class_<TraceRow>(module, "TraceRow", R"(One request of a trace.

An id of `hash_ids` stands for its block and all blocks before it. Rows of one `session` are turns that follow each other; a
turn starts `delay_ms` after the answer to the one before.)")
      .def(
          "__init__",
          [](TraceRow* self, std::vector<std::uint64_t> hash_ids, double timestamp_ms, std::uint64_t input_tokens,
             std::uint64_t output_tokens, std::string session, std::optional<double> delay_ms) {
            new (self) TraceRow{.timestamp_ms = timestamp_ms,
                                .input_tokens = input_tokens,
                                .output_tokens = output_tokens,
                                .session = std::move(session),
                                .delay_ms = delay_ms,
                                .hash_ids = std::move(hash_ids)};
          },
          nb::arg("hash_ids"), nb::arg("timestamp_ms") = 0.0, nb::arg("input_tokens") = 0, nb::arg("output_tokens") = 0,
          nb::arg("session") = "", nb::arg("delay_ms") = nb::none())
      .def_ro("timestamp_ms", &TraceRow::timestamp_ms, "When the request arrives.")
      .def_ro("input_tokens", &TraceRow::input_tokens, "Tokens of the prompt; 0 if not given.")
      .def_ro("output_tokens", &TraceRow::output_tokens, "Tokens of the answer; 0 if not given.")
      .def_ro("session", &TraceRow::session, "The session; empty for none.")
      .def_ro("delay_ms", &TraceRow::delay_ms, "How long after the answer to the turn before; None if not given.")
      .def_ro("hash_ids", &TraceRow::hash_ids, "The blocks of the prompt.")
      .def("__repr__", [](const TraceRow& row) {
        return str_cat("<cairn.TraceRow at ", static_cast<std::uint64_t>(row.timestamp_ms),
                       " ms: ", row.hash_ids.size(), " blocks, ", row.input_tokens, " tokens in, ", row.output_tokens,
                       " out>");
      });
  nb::class_<Reader>(module, "TraceReader", "Reads a trace file row by row. Invalid rows are left out and counted.")
      .def(
          "__init__", [](Reader* self, const std::string& path) { new (self) Reader(open_trace(path)); },
          nb::arg("path"))
      .def(
          "__iter__", [](nb::object self) { return self; }, nb::sig("def __iter__(self) -> typing_extensions.Self"))
      .def("__next__", &next_row)
      .def_prop_ro(
          "bad_rows", [](const Reader& reader) { return reader.get().bad_rows().first; },
          "Invalid rows that were left out so far.")
      .def_prop_ro(
          "first_bad_row", [](const Reader& reader) { return reader.get().bad_rows().second; },
          "The first of them: its line and what is wrong; empty if there is none.");
  module.def("generate_trace", &generate, nb::arg("kind") = "chat", nb::arg("requests") = 10'000,
             nb::arg("block_size") = 512, nb::arg("seed") = 1, nb::arg("loop_blocks") = 1'001,
             "The rows of a synthetic trace. The same arguments give the same rows everywhere.");
}

struct HitrateTier {
  std::string capacity;
  std::uint32_t blocks = 0;
  std::uint64_t hits = 0;
  std::uint64_t written = 0;
};

std::vector<HitrateTier> tiers_of(const lab::Row& row) {
  std::vector<HitrateTier> tiers;
  for (std::size_t i = 0; i < row.counts.lower.size(); ++i) {
    tiers.push_back({.capacity = row.lower[i].capacity,
                     .blocks = row.lower[i].blocks,
                     .hits = row.counts.lower[i].hits,
                     .written = row.counts.lower[i].written});
  }
  return tiers;
}

struct HitrateArguments {
  std::vector<lab::Contender> contenders;
  std::vector<lab::Capacity> capacities;
  lab::Conditions conditions;
};

Result<std::vector<lab::Capacity>> capacities_of(const std::vector<std::string>& texts) {
  std::vector<lab::Capacity> capacities;
  for (const std::string& text : texts) {
    CAIRN_TRY_ASSIGN(lab::Capacity capacity, lab::parse_capacity(text));
    capacities.push_back(std::move(capacity));
  }
  return capacities;
}

std::vector<lab::Row> measure(const std::variant<std::string, std::vector<TraceRow>>& source,
                              const std::vector<std::string>& policies, const std::vector<std::string>& capacities,
                              const std::vector<std::string>& tiers, std::string_view admit, bool hints,
                              bool leaves_first, std::uint32_t block_size) {
  const HitrateArguments given{.contenders = value_or_raise(lab::parse_contenders(policies)),
                               .capacities = value_or_raise(capacities_of(capacities)),
                               .conditions = {.hints = hints,
                                              .leaves_first = leaves_first,
                                              .tiers = value_or_raise(capacities_of(tiers)),
                                              .admit = value_or_raise(lab::parse_admit(admit))}};
  if (given.contenders.empty() || given.capacities.empty() || block_size == 0) {
    raise(ErrorCode::kInvalidArgument, "nothing to measure; give a policy, a capacity and a block size");
  }
  const auto load = [&]() -> Result<lab::Trace> {
    if (const auto* path = std::get_if<std::string>(&source)) {
      return lab::Trace::load(*path, block_size);
    }
    lab::Trace trace("rows", block_size);
    for (const TraceRow& row : std::get<std::vector<TraceRow>>(source)) {
      CAIRN_TRY(trace.add(row));
    }
    return trace;
  };
  return value_or_raise(run_interruptibly([&](const std::atomic<bool>& stop) -> Result<std::vector<lab::Row>> {
    CAIRN_TRY_ASSIGN(const lab::Trace trace, load());
    return lab::measure(trace, given.contenders, given.capacities, given.conditions,
                        [&](std::size_t /*done*/, std::size_t /*all*/) { return !stop; });
  }));
}

void bind_hitrate(nb::module_& module) {
  bind_record<HitrateTier>(module, "HitrateTier", "What a lower tier did in a run of `cairn.hitrate`.",
                           Field{"capacity", &HitrateTier::capacity, "As it was given: blocks, or a percentage."},
                           Field{"blocks", &HitrateTier::blocks, "Its capacity in blocks."},
                           Field{"hits", &HitrateTier::hits, "Blocks that were hit here, and not above."},
                           Field{"written", &HitrateTier::written, "Blocks written to the tier."});
  using lab::Row;
  bind_record<Row>(
      module, "HitrateRow", "A policy with a capacity on a trace: one run of `cairn.hitrate`.",
      Field{"trace", &Row::trace, "The trace."},
      Field{"policy", &Row::policy, "The policy, or opt, opt-insert or infinite."},
      Field{"capacity", &Row::capacity, "As it was given: blocks, or a percentage."},
      Field{"blocks", &Row::blocks, "The capacity in blocks."},
      Field{"hit_ratio", [](const Row& row) { return row.counts.block_ratio(); },
            "Share of the blocks that were hit, with all blocks before them."},
      Field{"byte_hit_ratio", [](const Row& row) { return row.counts.byte_ratio(); }, "Share of the bytes."},
      Field{"request_hit_ratio", [](const Row& row) { return row.counts.request_ratio(); },
            "Share of the requests that hit at least one block."},
      Field{"written_per_hit", [](const Row& row) { return row.counts.written_per_hit(); },
            "Blocks written to lower tiers for each hit; without lower tiers, blocks evicted."},
      Field{"requests", [](const Row& row) { return row.counts.requests; }, "Requests of the trace."},
      Field{"block_requests", [](const Row& row) { return row.counts.blocks; }, "Blocks that they asked for."},
      Field{"block_hits", [](const Row& row) { return row.counts.blocks_hit; }, "Of those, hits."},
      Field{"evicted", [](const Row& row) { return row.counts.evicted; }, "Blocks that the first tier evicted."},
      Field{"tiers", &tiers_of, "The lower tiers; empty for opt, opt-insert and infinite."});
  module.def("_measure", &measure, nb::arg("trace"), nb::arg("policies"), nb::arg("capacities"), nb::arg("tiers"),
             nb::arg("admit"), nb::arg("hints"), nb::arg("leaves_first"), nb::arg("block_size"),
             "What cairn.hitrate() calls.");
}

// The report as JSON text, as `cairn replay --json` writes it.
std::string replay(const std::string& path, const std::vector<std::pair<std::string, std::string>>& options,
                   bool strict) {
  cli::ReplaySources sources;
  for (const auto& [name, value] : options) {
    sources.options.push_back(name + "=" + value);
  }
  const cli::ReplaySettings settings = value_or_raise(cli::read_settings(sources));
  sim::ReplayOptions replay = value_or_raise(cli::to_options(settings));
  return value_or_raise(run_interruptibly([&](const std::atomic<bool>& stop) -> Result<std::string> {
    using cli::TraceSource;
    CAIRN_TRY_ASSIGN(cli::TraceMix source, cli::TraceMix::open({.paths = {path},
                                                                .bad_rows = strict ? TraceSource::BadRows::kStop
                                                                                   : TraceSource::BadRows::kLeaveOut,
                                                                .rate = settings.rate}));
    replay.progress = [&](const sim::ReplayProgress& /*at*/) { return source.status().has_value() && !stop; };
    CAIRN_TRY_ASSIGN(sim::Report report, sim::run_replay(replay, source));
    CAIRN_TRY(source.status());
    return cli::to_json(path, {.settings = settings, .report = std::move(report)},
                        {.bad_rows = source.bad_rows(), .names = source.bad_row_names()});
  }));
}

}  // namespace

void bind_trace(nb::module_& module) {
  bind_rows(module);
  bind_hitrate(module);
  module.def("_replay", &replay, nb::arg("path"), nb::arg("options"), nb::arg("strict"), "What cairn.replay() calls.");
}

}  // namespace cairn::python
