// An engine in virtual time around a SchedulerConnector: its iterations take the time that a model on a GPU takes, and links
// copy at given speeds. Nothing is computed or copied, and every run of a seed is the same.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <deque>
#include <limits>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "cairn/base/check.h"
#include "cairn/connector/scheduler_connector.h"
#include "cairn/memory/memory_testing.h"
#include "cairn/transfer/virtual_links.h"

namespace cairn::testing {

struct VirtualRequest {
  TimePoint arrival{};
  std::vector<Token> prompt = {};
  std::uint32_t output = 16;  // tokens
  RequestEnding ending = RequestEnding::kUnknown;
};

class VirtualEngine {
 public:
  struct Options {
    double tokens_per_second = 20'000;  // of prefill, without context
    double context_of_twice_the_time = 50'000;
    Duration iteration = std::chrono::milliseconds(8);  // whatever it computes
    double decode_seconds = 20e-6;                      // for each token
    std::size_t tokens_per_iteration = 2048;
    std::uint32_t device_blocks = 20'000;
    std::uint32_t host_blocks = 0;
    std::uint32_t disk_blocks = 0;
    VirtualLinks::Speeds links = {};
    double noise = 0;             // of iterations, relative
    bool measures = false;        // the engine reports its durations itself
    OnboardOptions onboard = {};  // the defaults, unless a test is about them
    std::string disk_path = {};   // to open again; empty: a file of its own
  };

  explicit VirtualEngine(const Options& options) : options_(options), free_(options.device_blocks) {
    std::iota(free_.begin(), free_.end(), 0U);
    SchedulerConnector::Options made;
    // 128 KiB a token, 2 MiB a block, as of a model of 8 billion weights.
    made.manager.model = {.name = "virtual", .layers = 32, .heads = 8, .head_size = 128, .element_type = "bf16"};
    made.manager.device.blocks = options.device_blocks;
    made.manager.host.blocks = options.host_blocks;
    made.manager.disk.blocks = options.disk_blocks;
    if (options.disk_blocks > 0) {
      made.manager.disk.path = options.disk_path.empty() ? folder_.in("entries") : options.disk_path;
    }
    made.manager.event_log = 0;
    made.manager.onboard = options.onboard;
    made.manager.model.secret = std::string(64, 'a');
    made.parts.clock = &clock_;
    made.parts.own_thread = false;
    made.parts.seed = KeySeed::from(1);
    made.parts.elsewhere = [this] {
      auto links = std::make_unique<VirtualLinks>(clock_, options_.links);
      links_ = links.get();
      return links;
    };
    Result<std::unique_ptr<SchedulerConnector>> connector = SchedulerConnector::make(std::move(made));
    CAIRN_CHECK(connector.has_value(), connector ? "" : connector.error().message);
    connector_ = *std::move(connector);
  }

  // Serves all requests, in the order of their arrival. Returns the time to the first token of each, in seconds.
  std::vector<double> serve(const std::vector<VirtualRequest>& requests) {
    first_tokens_.assign(requests.size(), -1);
    std::size_t next = 0;
    while (next < requests.size() || !waiting_.empty() || !loading_.empty() || !running_.empty()) {
      for (; next < requests.size() && requests[next].arrival <= clock_.now(); ++next) {
        add(requests[next], next);
      }
      take_outcomes();
      admit();
      const TimePoint idle_until = next < requests.size() ? requests[next].arrival : TimePoint::max();
      if (running_.empty()) {
        idle(idle_until);
      } else {
        iterate();
      }
    }
    return first_tokens_;
  }

  [[nodiscard]] SchedulerConnector& connector() { return *connector_; }
  [[nodiscard]] VirtualLinks& links() { return *links_; }
  [[nodiscard]] Options& options() { return options_; }
  [[nodiscard]] ManualClock& clock() { return clock_; }
  [[nodiscard]] std::uint64_t loaded_tokens() const { return loaded_tokens_; }
  [[nodiscard]] std::uint64_t computed_tokens() const { return computed_tokens_; }  // of prompts

 private:
  struct Request {
    std::size_t index = 0;
    TimePoint arrival{};
    RequestHandle handle{};
    std::size_t prompt = 0;
    std::size_t computed = 0;
    std::uint32_t output_left = 0;
    RequestEnding ending = RequestEnding::kUnknown;
    std::size_t generated = 0;
    std::size_t scheduled = 0;
    std::vector<BlockId> blocks = {};
  };

  void add(const VirtualRequest& request, std::size_t index) {
    const Result<RequestHandle> handle = connector_->add(std::uint64_t{index}, {.tokens = request.prompt});
    ASSERT_TRUE(handle.has_value()) << handle.error().message;
    waiting_.push_back({.index = index,
                        .arrival = request.arrival,
                        .handle = *handle,
                        .prompt = request.prompt.size(),
                        .output_left = request.output,
                        .ending = request.ending});
  }
  void take_outcomes() {
    const SchedulerConnector::Outcomes outcomes = connector_->take_outcomes();
    for (const auto& loaded : outcomes.loaded) {
      const auto found = std::ranges::find(loading_, loaded.request, &Request::handle);
      found->computed = loaded.tokens;
      loaded_tokens_ += loaded.tokens;
      running_.push_back(std::move(*found));
      loading_.erase(found);
    }
    for (const RequestId& released : outcomes.released) {
      give_back(held_[*released.number()]);
      held_.erase(*released.number());
    }
  }
  void give_back(const std::vector<BlockId>& blocks) {
    for (const BlockId block : blocks) {
      free_.push_back(index_of(block));
    }
  }
  void admit() {
    while (!waiting_.empty()) {
      Request& request = waiting_.front();
      const std::size_t needed = (request.prompt + request.output_left) / 16 + 1;
      if (free_.size() < needed) {
        return;
      }
      const SchedulerConnector::Match match = *connector_->match(request.handle, 0);
      if (match.when == SchedulerConnector::Match::When::kAskAgain) {
        return;
      }
      for (std::size_t i = 0; i < needed; ++i) {
        request.blocks.push_back(BlockId{free_.back()});
        free_.pop_back();
      }
      ASSERT_TRUE(connector_->allocated(request.handle, request.blocks, 0, match.tokens).has_value());
      (match.tokens > 0 ? loading_ : running_).push_back(std::move(request));
      waiting_.pop_front();
    }
  }
  void build(const std::vector<SchedulerConnector::Scheduled>& scheduled) {
    SchedulerConnector::Iteration iteration{.number = ++number_, .scheduled = scheduled};
    if (options_.measures) {
      iteration.duration = last_duration_;
    }
    ASSERT_TRUE(connector_->build(iteration, metadata_).has_value());
    ASSERT_TRUE(connector_->refused().empty()) << connector_->refused().front().error.message;
  }
  void iterate() {
    std::vector<SchedulerConnector::Scheduled> scheduled;
    std::size_t left = options_.tokens_per_iteration;
    double seconds = std::chrono::duration<double>(options_.iteration).count();
    for (Request& request : running_) {
      const bool decodes = request.computed >= request.prompt;
      request.scheduled = std::min(decodes ? 1 : request.prompt - request.computed, left);
      if (request.scheduled == 0) {
        continue;
      }
      left -= request.scheduled;
      SchedulerConnector::Scheduled& each = scheduled.emplace_back();
      each = {.request = request.handle, .computed_tokens = request.computed, .scheduled_tokens = request.scheduled};
      if (decodes) {
        each.new_tokens = kToken;
        seconds += options_.decode_seconds;
      } else {
        const auto tokens = static_cast<double>(request.scheduled);
        const double context = static_cast<double>(request.computed) + tokens / 2;
        seconds += tokens / options_.tokens_per_second * (1 + context / options_.context_of_twice_the_time);
        computed_tokens_ += request.scheduled;
      }
    }
    seconds *= std::max(0.2, 1 + std::normal_distribution<double>(0, 1)(random_) * options_.noise);
    build(scheduled);
    last_duration_ = Duration(std::llround(seconds * 1e9));
    pass_until(clock_.now() + last_duration_);
    for (std::size_t i = 0; i < running_.size();) {
      Request& request = running_[i];
      request.computed += std::exchange(request.scheduled, 0);
      if (request.computed == request.prompt) {
        first_tokens_[request.index] = std::chrono::duration<double>(clock_.now() - request.arrival).count();
      }
      if (request.computed >= request.prompt && request.output_left-- == 0) {
        if (*connector_->finish(request.handle, request.computed, request.ending)) {
          held_[request.index] = std::move(request.blocks);
        } else {
          give_back(request.blocks);
        }
        running_.erase(running_.begin() + static_cast<std::ptrdiff_t>(i));
      } else {
        ++i;
      }
    }
  }
  // Nothing can be computed.
  void idle(TimePoint until) {
    if (connector_->has_work()) {
      build({});
    }
    settle();
    const TimePoint next = std::min({until, links_ != nullptr ? links_->next_time() : TimePoint::max(),
                                     connector_->manager().next_time().value_or(TimePoint::max())});
    ASSERT_LT(next, TimePoint::max()) << "nothing would ever happen";
    pass_until(std::max(next, clock_.now()));
  }
  void settle() {
    for (bool more = true; more;) {
      more = connector_->manager().pump();
      more |= links_ != nullptr && links_->run();
    }
  }
  void pass_until(TimePoint end) {
    settle();
    while (clock_.now() < end) {
      TimePoint next = std::min(end, connector_->manager().next_time().value_or(end));
      next = std::min(next, links_ != nullptr ? links_->next_time() : end);
      clock_.advance(std::max(next - clock_.now(), Duration(1)));
      settle();
    }
  }

  static constexpr std::array<Token, 1> kToken = {7};
  Options options_;
  TestFolder folder_;
  ManualClock clock_;
  std::mt19937_64 random_{3};
  VirtualLinks* links_ = nullptr;  // the manager's; null without tiers
  std::unique_ptr<SchedulerConnector> connector_;
  std::vector<std::uint32_t> free_;
  std::deque<Request> waiting_;
  std::vector<Request> loading_;
  std::vector<Request> running_;
  std::map<std::uint64_t, std::vector<BlockId>> held_;  // finished, and still being saved
  std::vector<double> first_tokens_;
  std::uint64_t number_ = 0;
  Duration last_duration_{};
  std::uint64_t loaded_tokens_ = 0;
  std::uint64_t computed_tokens_ = 0;
  std::vector<std::byte> metadata_;
};

// Questions about documents: each prompt is one of a few documents and a question of its own.
struct VirtualTraffic {
  std::uint32_t requests = 200;
  std::uint32_t documents = 12;
  std::uint32_t document_tokens = 2000;  // on average
  double gap_seconds = 1;                // between arrivals, on average
  bool is_regular = false;               // each gap is the same

  [[nodiscard]] std::vector<VirtualRequest> make(std::uint64_t seed) const {
    std::mt19937_64 random(seed);
    const auto below = [&random](std::uint64_t n) { return static_cast<std::uint32_t>(random() % n); };
    std::vector<std::uint32_t> lengths(documents);
    for (std::uint32_t& length : lengths) {
      length = document_tokens / 4 + below(document_tokens * 3 / 2);
    }
    std::vector<VirtualRequest> all(requests);
    double now = 0;
    for (std::uint32_t i = 0; i < requests; ++i) {
      const std::uint32_t document = below(documents);
      all[i].arrival = Duration(std::llround(now * 1e9));
      for (std::uint32_t token = 0; token < lengths[document]; ++token) {
        all[i].prompt.push_back(1000 * document + token);
      }
      for (std::uint32_t token = 0, count = 30 + below(300); token < count; ++token) {
        all[i].prompt.push_back(1'000'000 + 1000 * i + token);
      }
      all[i].output = 4 + below(24);
      now += is_regular ? gap_seconds : gap_seconds * std::exponential_distribution<double>(1)(random);
    }
    return all;
  }
};

}  // namespace cairn::testing
