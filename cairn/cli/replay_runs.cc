#include "cairn/cli/replay_runs.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <ostream>
#include <thread>
#include <utility>
#include <vector>

#include "cairn/base/str_cat.h"
#include "cairn/cli/event_file.h"
#include "cairn/cli/replay_compare.h"
#include "cairn/cli/replay_page.h"
#include "cairn/cli/replay_report.h"
#include "cairn/cli/text.h"
#include "cairn/cli/trace_source.h"
#include "cairn/page/page.h"

namespace cairn::cli {
namespace {

constexpr Duration kBetweenProgress = std::chrono::milliseconds(100);

// "3 s", "2 min 5 s"
std::string duration_text(double seconds) {
  const auto whole = static_cast<std::uint64_t>(seconds + 0.5);
  return whole < 60 ? str_cat(whole, " s") : str_cat(whole / 60, " min ", whole % 60, " s");
}

// The progress of all runs together. Any thread reports; the thread that made it shows it.
class ProgressLine {
 public:
  ProgressLine(const ReplaySurroundings& around, std::size_t runs)
      : around_(around), begin_(around.clock.now()), shown_(begin_), finished_(runs), expected_(runs) {}

  void update(std::size_t run, std::uint64_t finished, double expected) {
    finished_[run].store(finished, std::memory_order_relaxed);
    expected_[run].store(expected, std::memory_order_relaxed);
    const TimePoint now = around_.clock.now();
    if (!around_.log_is_a_terminal || std::this_thread::get_id() != owner_ || now - shown_ < kBetweenProgress) {
      return;
    }
    shown_ = now;
    std::uint64_t done = 0;
    double all = 0;
    for (std::size_t i = 0; i < finished_.size(); ++i) {
      done += finished_[i].load(std::memory_order_relaxed);
      all += std::max(expected, expected_[i].load(std::memory_order_relaxed));
    }
    const double rate = static_cast<double>(done) / seconds();
    const double left = rate == 0 ? 0 : std::max(0.0, all - static_cast<double>(done)) / rate;
    around_.log << str_cat("\r\033[K", with_commas(done), " of about ", with_commas(static_cast<std::uint64_t>(all)),
                           " requests, ", with_commas(static_cast<std::uint64_t>(rate)), " a second, ",
                           duration_text(left), " left")
                << std::flush;
  }

  void finish(std::uint64_t requests) {
    if (around_.log_is_a_terminal) {
      around_.log << "\r\033[Kreplayed " << with_commas(requests) << " requests in "
                  << static_cast<double>(static_cast<std::uint64_t>(seconds() * 100)) / 100 << " s\n";
    }
  }

 private:
  [[nodiscard]] double seconds() const {
    return std::max(1e-3, static_cast<double>((around_.clock.now() - begin_).count()) / 1e9);
  }

  const ReplaySurroundings& around_;
  const TimePoint begin_;
  const std::thread::id owner_ = std::this_thread::get_id();
  TimePoint shown_;
  // Relaxed: only shown to the user, and each written by one thread.
  std::vector<std::atomic<std::uint64_t>> finished_;
  std::vector<std::atomic<double>> expected_;
};

// One run and its outcome.
struct Job {
  ReplayRun run;
  sim::ReplayOptions options;
  TraceProblems problems = {};
  Status status = {};
};

void run_job(const ReplayCommand& command, const ReplaySurroundings& around, ProgressLine& progress, std::size_t number,
             Job& job) {
  Result<TraceMix> source =
      TraceMix::open({.paths = command.traces,
                      .bad_rows = command.strict ? TraceSource::BadRows::kStop : TraceSource::BadRows::kLeaveOut,
                      .rate = job.run.settings.rate});
  if (!source) {
    job.status = Unexpected(source.error());
    return;
  }
  job.options.progress = [&](const sim::ReplayProgress& at) {
    progress.update(number, at.finished, source->expected_rows());
    return source->status().has_value() && !around.stop.load(std::memory_order_relaxed);
  };
  Result<sim::Report> report = sim::run_replay(job.options, *source);
  job.problems = {source->bad_rows(), source->bad_row_names()};
  if (!report) {
    job.status = Unexpected(report.error());
  } else if (!source->status()) {
    job.status = source->status();
  } else {
    job.run.report = *std::move(report);
  }
}

// Runs all jobs on several threads. Jobs are independent: their order does not matter.
void run_jobs(const ReplayCommand& command, const ReplaySurroundings& around, ProgressLine& progress,
              std::vector<Job>& jobs) {
  std::atomic<std::size_t> next{0};
  const auto work = [&] {
    for (std::size_t i = next.fetch_add(1); i < jobs.size(); i = next.fetch_add(1)) {
      run_job(command, around, progress, i, jobs[i]);
    }
  };
  const std::size_t cores = command.threads > 0 ? command.threads : std::max(1U, std::thread::hardware_concurrency());
  std::vector<std::jthread> helpers;
  for (std::size_t i = 1; i < std::min(cores, jobs.size()); ++i) {
    helpers.emplace_back(work);
  }
  work();
}

Result<std::vector<Job>> jobs_of(const ReplayCommand& command) {
  if ((command.scenarios != Scenarios::kNone || !command.compare.empty()) && !command.events.empty()) {
    return fail(ErrorCode::kInvalidArgument, "--events needs a single run; remove it or the comparison");
  }
  const bool has_scenarios = command.scenarios != Scenarios::kNone;
  if (has_scenarios && !command.compare.empty()) {
    return fail(ErrorCode::kInvalidArgument, "--scenarios and --compare both choose what is compared; remove one");
  }
  std::vector<NamedSettings> all;
  if (has_scenarios) {
    CAIRN_TRY_ASSIGN(all, scenarios(command.settings));
    if (command.scenarios == Scenarios::kFirstAndLast) {
      all.erase(all.begin() + 1, all.end() - 1);
    }
  } else if (!command.compare.empty()) {
    CAIRN_TRY_ASSIGN(all, vary(command.settings, command.compare));
  } else {
    CAIRN_TRY_ASSIGN(ReplaySettings settings, read_settings(command.settings));
    all.push_back({.name = "", .settings = std::move(settings)});
  }
  std::vector<Job> jobs;
  for (NamedSettings& one : all) {
    CAIRN_TRY_ASSIGN(sim::ReplayOptions options, to_options(one.settings));
    jobs.push_back({.run = {.name = std::move(one.name), .settings = one.settings}, .options = std::move(options)});
  }
  return jobs;
}

void write_problems(std::ostream& log, const std::string& trace, const TraceProblems& problems) {
  if (problems.bad_rows == 0) {
    return;
  }
  log << trace << ": left out " << with_commas(problems.bad_rows) << (problems.bad_rows == 1 ? " bad row" : " bad rows")
      << "\n";
  for (const std::string& name : problems.names) {
    log << "  " << name << "\n";
  }
}

Status write_json(const ReplayCommand& command, const std::string& text, std::ostream& out, std::ofstream& file) {
  if (command.json == "-") {
    out << text;
  } else if (!command.json.empty()) {
    file << text;
    if (!file.flush()) {
      return fail(ErrorCode::kExhausted, str_cat("--json: ", command.json, " could not be written completely"));
    }
  }
  return {};
}

}  // namespace

Result<ReplayEnd> run_replay_command(const ReplayCommand& command, const ReplaySurroundings& around) {
  CAIRN_TRY_ASSIGN(std::vector<Job> jobs, jobs_of(command));
  // Open all files first, so that a mistake shows before the work and not after it.
  std::string trace;
  for (const std::string& path : command.traces) {
    if (!std::filesystem::exists(path)) {
      return fail(ErrorCode::kNotFound, str_cat("no such trace: ", path, "; cairn trace generates one"));
    }
    trace += str_cat(trace.empty() ? "" : " + ", path);
  }
  std::ofstream json;
  if (!command.json.empty() && command.json != "-") {
    json.open(command.json);
    if (!json) {
      return fail(ErrorCode::kInvalidArgument, str_cat("--json: cannot write ", command.json));
    }
  }
  std::ofstream html;
  if (!command.html.empty()) {
    html.open(command.html);
    if (!html) {
      return fail(ErrorCode::kInvalidArgument, str_cat("--html: cannot write ", command.html));
    }
  }
  std::unique_ptr<EventFile> events;
  if (!command.events.empty()) {
    CAIRN_TRY_ASSIGN(std::unique_ptr<EventFile> file, EventFile::open(command.events));
    events = std::move(file);
    jobs.front().options.events = events.get();
  }

  ProgressLine progress(around, jobs.size());
  run_jobs(command, around, progress, jobs);
  std::vector<ReplayRun> runs;
  std::uint64_t requests = 0;
  for (Job& job : jobs) {
    if (!job.status) {
      return Unexpected(job.status.error());
    }
    requests += job.run.report.counts.completed;
    runs.push_back(std::move(job.run));
  }
  progress.finish(requests);
  CAIRN_TRY(events ? events->close() : Status());
  const TraceProblems& problems = jobs.front().problems;
  write_problems(around.log, trace, problems);

  std::vector<Comparison> comparisons;
  for (std::size_t i = 1; i < runs.size(); ++i) {
    comparisons.push_back({.base = runs[0].name,
                           .other = runs[i].name,
                           .requests = answered_by_both(runs[0].report, runs[i].report),
                           .differences = compare_runs(runs[0].report, runs[i].report)});
  }
  if (command.json != "-") {
    if (command.introduce) {
      command.introduce(runs);
    }
    if (runs.size() == 1) {
      write_report(around.out, trace, runs[0]);
    } else {
      write_comparison(around.out, trace, runs, comparisons);
    }
  }
  if (!command.json.empty()) {
    const std::string text =
        runs.size() == 1 ? to_json(trace, runs[0], problems) : to_json(trace, runs, comparisons, problems);
    CAIRN_TRY(write_json(command, text, around.out, json));
  }
  if (!command.html.empty() &&
      !(html << page::render(replay_page(trace, runs, comparisons, command.words)) << std::flush)) {
    return fail(ErrorCode::kExhausted, str_cat("--html: ", command.html, " could not be written completely"));
  }
  const bool complete = std::ranges::all_of(runs, [](const ReplayRun& run) { return run.report.complete; });
  return complete ? ReplayEnd::kComplete : ReplayEnd::kStopped;
}

}  // namespace cairn::cli
