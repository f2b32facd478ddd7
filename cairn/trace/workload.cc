#include "cairn/trace/workload.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <queue>
#include <string>
#include <utility>

#include "cairn/base/str_cat.h"

namespace cairn::trace {

namespace {

// The distributions of the standard library differ between implementations; these do not.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}

  // Between 0 and 1, both excluded.
  double uniform() { return (static_cast<double>(next() >> 11) + 0.5) / 9007199254740992.0; }
  std::uint32_t below(std::uint32_t limit) { return static_cast<std::uint32_t>(uniform() * limit); }
  double exponential(double mean) { return -mean * std::log(uniform()); }
  // Log-normal: half are below the median, about two in three within a factor of `spread` of it.
  double lognormal(double median, double spread) {
    const double normal = std::sqrt(-2 * std::log(uniform())) * std::cos(2 * std::numbers::pi * uniform());
    return median * std::pow(spread, normal);
  }
  // Of blocks or tokens.
  std::uint32_t count(double median, double spread, std::uint32_t most) {
    return std::clamp(static_cast<std::uint32_t>(lognormal(median, spread)), 1U, most);
  }

 private:
  std::uint64_t next() {
    state_ += 0x9E3779B97F4A7C15U;
    std::uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
    return z ^ (z >> 31);
  }

  std::uint64_t state_;
};

enum class Speaker : std::uint8_t { kPerson, kAgent, kOnce };

struct Session {
  double next_ms = 0;
  std::uint64_t number = 0;  // breaks ties
  Speaker speaker = Speaker::kPerson;
  std::uint32_t turns_left = 1;
  std::vector<std::uint64_t> ids = {};
  friend bool operator<(const Session& a, const Session& b) {
    return a.next_ms != b.next_ms ? a.next_ms > b.next_ms : a.number > b.number;
  }
};

class Traffic {
 public:
  explicit Traffic(const WorkloadOptions& options) : options_(options), random_(options.seed), answers_(~options.seed) {
    for (std::uint32_t i = 0; i < kSystemPrompts; ++i) {
      system_prompts_.emplace_back();
      append(system_prompts_.back(), random_.count(2, 2, 8));
    }
  }

  void run(const std::function<void(const TraceRow&)>& emit) {
    double next_arrival = 0;
    for (std::uint32_t count = 0; count < options_.requests; ++count) {
      while (waiting_.empty() || next_arrival <= waiting_.top().next_ms) {
        arrive(next_arrival, static_cast<double>(count) / options_.requests);
        next_arrival += random_.exponential(arrival_gap_ms_);
      }
      Session session = waiting_.top();
      waiting_.pop();
      const auto tokens = static_cast<std::uint64_t>(session.ids.size()) * options_.block_size;
      emit({.timestamp_ms = std::floor(session.next_ms),
            .input_tokens = tokens - random_.below(options_.block_size),
            .output_tokens = answer_to(session.speaker),
            .session = session.speaker == Speaker::kOnce ? std::string() : str_cat("s", session.number),
            .hash_ids = session.ids});
      if (--session.turns_left > 0) {
        go_on(session);
        waiting_.push(std::move(session));
      }
    }
  }

 private:
  static constexpr std::uint32_t kSystemPrompts = 20;

  void append(std::vector<std::uint64_t>& ids, std::uint32_t count) {
    for (; count > 0; --count) {
      ids.push_back(next_id_++);
    }
  }

  // People want explanations, agents the next call, readers of documents a summary.
  std::uint32_t answer_to(Speaker speaker) {
    switch (speaker) {
      case Speaker::kPerson:
        return answers_.count(250, 2, 4'000);
      case Speaker::kAgent:
        return answers_.count(80, 2.5, 4'000);
      case Speaker::kOnce:
        break;
    }
    return answers_.count(120, 1.5, 1'000);
  }

  // `progress`: how much of the trace is done, 0 to 1.
  void arrive(double now_ms, double progress) {
    const bool night = options_.kind == WorkloadKind::kDiurnal && std::sin(progress * 8 * std::numbers::pi) < 0;
    if (options_.kind == WorkloadKind::kAgents || night) {
      arrival_gap_ms_ = 20'000;
      start(now_ms, Speaker::kAgent);
      return;
    }
    arrival_gap_ms_ = 1'000;
    start(now_ms, Speaker::kPerson);
    if (options_.kind == WorkloadKind::kFlood) {
      for (int i = 0; i < 8; ++i) {
        start(now_ms + i, Speaker::kOnce);
      }
    } else if (options_.kind == WorkloadKind::kScan && random_.uniform() < 0.01) {
      for (int i = 0; i < 100; ++i) {
        start(now_ms + 100 * i, Speaker::kOnce);
      }
    }
  }

  void start(double now_ms, Speaker speaker) {
    Session session{.next_ms = now_ms, .number = ++sessions_, .speaker = speaker};
    if (speaker == Speaker::kOnce) {
      append(session.ids, random_.count(options_.kind == WorkloadKind::kScan ? 60 : 10, 1.5, 400));
      waiting_.push(std::move(session));
      return;
    }
    // A few system prompts are used by most sessions.
    const double rank = std::pow(kSystemPrompts, random_.uniform()) - 1;
    session.ids = system_prompts_[static_cast<std::size_t>(rank)];
    const bool agent = speaker == Speaker::kAgent;
    append(session.ids, agent ? random_.count(30, 1.8, 200) : random_.count(6, 2.5, 200));
    session.turns_left = 1 + static_cast<std::uint32_t>(random_.exponential(agent ? 40 : 4));
    waiting_.push(std::move(session));
  }

  void go_on(Session& session) {
    if (session.speaker == Speaker::kAgent) {
      append(session.ids, random_.count(2, 1.8, 30));
      const bool person = random_.uniform() < 0.05;
      session.next_ms += 3'000 + random_.exponential(person ? 300'000 : 6'000);
    } else {
      append(session.ids, random_.count(2, 2, 60));
      session.next_ms += 10'000 + random_.lognormal(30'000, 3);
    }
  }

  const WorkloadOptions options_;
  Random random_;
  Random answers_;  // of its own, so that prompts do not depend on answers
  std::uint64_t next_id_ = 0;
  std::uint64_t sessions_ = 0;
  double arrival_gap_ms_ = 1'000;
  std::vector<std::vector<std::uint64_t>> system_prompts_;
  std::priority_queue<Session> waiting_;
};

}  // namespace

std::string_view to_string(WorkloadKind kind) {
  switch (kind) {
    case WorkloadKind::kChat:
      return "chat";
    case WorkloadKind::kAgents:
      return "agents";
    case WorkloadKind::kScan:
      return "scan";
    case WorkloadKind::kFlood:
      return "flood";
    case WorkloadKind::kDiurnal:
      return "diurnal";
    case WorkloadKind::kLoop:
      return "loop";
  }
  return "unknown";
}

std::optional<WorkloadKind> parse_workload(std::string_view name) {
  for (const WorkloadKind kind : kAllWorkloads) {
    if (to_string(kind) == name) {
      return kind;
    }
  }
  return std::nullopt;
}

void generate(const WorkloadOptions& options, const std::function<void(const TraceRow&)>& emit) {
  if (options.kind != WorkloadKind::kLoop) {
    Traffic(options).run(emit);
    return;
  }
  for (std::uint32_t i = 0; i < options.requests; ++i) {
    emit({.timestamp_ms = 1'000.0 * i,
          .input_tokens = options.block_size,
          .output_tokens = 1,
          .hash_ids = {i % options.loop_blocks}});
  }
}

}  // namespace cairn::trace
