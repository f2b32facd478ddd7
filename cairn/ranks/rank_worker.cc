#include "cairn/ranks/rank_worker.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <optional>
#include <thread>
#include <utility>
#include <variant>

#include "cairn/base/deadline.h"
#include "cairn/base/end_within.h"
#include "cairn/base/mutex.h"
#include "cairn/base/own_thread.h"
#include "cairn/base/str_cat.h"
#include "cairn/ranks/rank_line.h"
#include "cairn/ranks/rank_memory.h"
#include "cairn/ranks/rank_routes.h"
#include "cairn/ranks/rank_work.h"

namespace cairn {

namespace {

// Between two tries to reach the leader.
constexpr Duration kFirstPause = std::chrono::milliseconds(20);
constexpr Duration kLongestPause = std::chrono::seconds(2);
// A leader that says nothing for so many of its heartbeats, or for this long if that is longer, is gone.
constexpr int kSilentHeartbeats = 10;
constexpr Duration kLeastSilence = std::chrono::seconds(1);

}  // namespace

class RankWorker::Impl {
 public:
  Impl(std::unique_ptr<RankLine> line, Options options)
      : options_(std::move(options)),
        line_(std::move(line)),
        work_(options_.device.groups().model_layers(), *options_.clock,
              [this](std::uint32_t generation, const RankMessage& message) { line_->send(generation, message); }),
        thread_(start_own_thread("cairn-rank", [this] { serve(); })) {}

  ~Impl() {
    {
      const MutexLock lock(mutex_);
      is_stopping_ = true;
      changed_.notify_all();
    }
    work_.wake();
    line_->wake();
    thread_.join();
  }

  // The first talk; the error of the last try where there is none.
  [[nodiscard]] Status wait_for_leader() {
    const TimePoint deadline = deadline_after(steady_clock().now(), options_.first_connection);
    const MutexLock lock(mutex_);
    for (;;) {
      if (state_.is_connected) {
        return {};
      }
      if (unfit_) {
        return Unexpected(*unfit_);
      }
      const TimePoint now = steady_clock().now();
      if (now >= deadline) {
        return fail(ErrorCode::kUnavailable,
                    state_.reason.empty() ? "the leader has not taken this rank in time" : state_.reason);
      }
      changed_.wait_for(mutex_, deadline - now);
    }
  }

  [[nodiscard]] RankWork& work() { return work_; }
  [[nodiscard]] const Options& options() const { return options_; }
  [[nodiscard]] Duration shutdown() const { return Duration(shutdown_.load()); }
  [[nodiscard]] State state() const {
    const RankWork::Counts counts = work_.counts();
    const MutexLock lock(mutex_);
    State state = state_;
    state.copies = counts.copies;
    state.done = counts.done;
    state.failed = counts.failed;
    return state;
  }

 private:
  void serve() {
    Duration pause = kFirstPause;
    while (!is_stopping()) {
      // Until nothing of the old generation touches anything there is no new one; that may be never.
      if (!work_.wait_until_quiet(TimePoint::max())) {
        continue;
      }
      const bool was_connected = hang_up(talk());
      pause = was_connected ? kFirstPause : std::min(2 * pause, kLongestPause);
      rest(pause);
    }
  }

  [[nodiscard]] bool is_stopping() const {
    const MutexLock lock(mutex_);
    return is_stopping_;
  }

  void rest(Duration pause) {
    const TimePoint until = steady_clock().now() + pause;
    const MutexLock lock(mutex_);
    for (TimePoint now = steady_clock().now(); !is_stopping_ && now < until; now = steady_clock().now()) {
      changed_.wait_for(mutex_, until - now);
    }
  }

  // Whether it was connected before.
  bool hang_up(const Error& ended) {
    work_.lose();
    bool was_connected = false;
    {
      const MutexLock lock(mutex_);
      state_.reason = ended.message;
      was_connected = std::exchange(state_.is_connected, false);
      changed_.notify_all();
    }
    line_->close();
    return was_connected;
  }

  // Until the line breaks; why it did.
  [[nodiscard]] Error talk() {
    if (Status opened = line_->open(); !opened) {
      return opened.error();
    }
    generation_ = 0;
    TimePoint heard = steady_clock().now();
    while (!is_stopping()) {
      const Duration silence = std::max(kSilentHeartbeats * heartbeat_, kLeastSilence);
      const Duration quiet_for = steady_clock().now() - heard;
      // Before the welcome there are no heartbeats: a leader may have much to do before it begins.
      if (generation_ != 0 && quiet_for >= silence) {
        return {ErrorCode::kUnavailable, str_cat("the leader said nothing for ", quiet_for.count() / 1'000'000, " ms")};
      }
      Result<std::optional<RankDecoder::Received>> next =
          line_->receive(generation_ == 0 ? kLeastSilence : silence - quiet_for);
      if (!next) {
        return std::move(next).error();
      }
      if (*next) {
        if (Status taken = take(**next); !taken) {
          return taken.error();
        }
        heard = steady_clock().now();  // what was done meanwhile is no silence of the leader's
      }
    }
    return {ErrorCode::kCancelled, "this rank ends"};
  }

  [[nodiscard]] Status take(const RankDecoder::Received& received) {
    if (const auto* refusal = std::get_if<RankRefusal>(&received.message)) {
      return fail(ErrorCode::kUnavailable, str_cat("the leader says: ", refusal->reason));
    }
    if (const auto* welcome = std::get_if<RankWelcome>(&received.message)) {
      return join(*welcome);
    }
    if (generation_ == 0 || received.generation != generation_) {
      return {};  // of a talk that is over
    }
    if (const auto* copy = std::get_if<RankCopy>(&received.message)) {
      work_.copy(*copy);
    } else if (const auto* cancel = std::get_if<RankCancel>(&received.message)) {
      work_.cancel(cancel->id);
    } else if (const auto* notice = std::get_if<RankNotice>(&received.message)) {
      if (options_.notice) {
        options_.notice(leader_, notice->bytes);
      }
    } else if (const auto* ping = std::get_if<RankPing>(&received.message)) {
      line_->send(generation_, RankPong{.number = ping->number});
    } else {
      return fail(ErrorCode::kCorrupt, "the leader says what only a rank says");
    }
    return {};
  }

  [[nodiscard]] Status join(const RankWelcome& welcome) {
    if (generation_ != 0 || welcome.generation == 0) {
      return fail(ErrorCode::kCorrupt, "the leader welcomes twice, or to no generation");
    }
    if (Status made = make_memory(welcome.config); !made) {
      line_->send(welcome.generation, RankRefusal{.reason = made.error().message});
      const MutexLock lock(mutex_);
      unfit_ = made.error();
      return made;
    }
    leader_ = welcome.leader;
    generation_ = welcome.generation;
    heartbeat_ = std::clamp<Duration>(welcome.heartbeat, Duration::zero(), std::chrono::hours(24));
    work_.begin(generation_, leader_);
    {
      const MutexLock lock(mutex_);
      state_.is_connected = true;
      state_.leader = leader_;
      state_.generation = generation_;
      state_.reason.clear();
      unfit_.reset();
      changed_.notify_all();
    }
    line_->send(generation_, RankReady{.block_bytes = block_bytes_});
    return {};
  }

  // What there is of the same configuration stays: a file's bytes are the leader's to know.
  [[nodiscard]] Status make_memory(const std::string& text) {
    if (config_ == text) {
      return {};
    }
    config_.reset();
    work_.use(nullptr);  // what was before gives up its memory and its file first
    const Result<ManagerConfig> config = ManagerConfig::from_toml(text, "the leader's configuration");
    if (!config) {
      return Unexpected(config.error());
    }
    shutdown_ = config->shutdown.count();
    Result<RankMemory> memory = RankMemory::make(*config, options_.device, options_.rank, options_.ranks);
    if (!memory) {
      return Unexpected(std::move(memory).error());
    }
    block_bytes_ = memory->block_bytes();
    {
      const MutexLock lock(mutex_);
      state_.damage = memory->damage();
    }
    Result<std::unique_ptr<RankRoutes>> routes =
        RankRoutes::make(*config, options_.device.groups(), *std::move(memory), *options_.clock, options_.around);
    if (!routes) {
      return Unexpected(std::move(routes).error());
    }
    work_.use(*std::move(routes));
    config_ = text;
    return {};
  }

  const Options options_;
  const std::unique_ptr<RankLine> line_;  // outlives the work: it answers through it
  RankWork work_;
  mutable Mutex mutex_{LockRank::kRankLine};
  std::condition_variable_any changed_;
  State state_ CAIRN_GUARDED_BY(mutex_);
  std::optional<Error> unfit_ CAIRN_GUARDED_BY(mutex_);  // what the leader has is not for this rank
  bool is_stopping_ CAIRN_GUARDED_BY(mutex_) = false;
  std::atomic<Duration::rep> shutdown_ = Duration(std::chrono::seconds(5)).count();  // the leader's, once it is known
  // The thread's own.
  std::optional<std::string> config_;  // that the memory is of
  std::uint64_t block_bytes_ = 0;
  std::uint32_t generation_ = 0;  // of this talk; 0: not welcomed yet
  LeaderId leader_;               // that welcomed it
  Duration heartbeat_ = {};
  std::thread thread_;
};

RankWorker::RankWorker(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
RankWorker::~RankWorker() { end(std::move(impl_)); }

void RankWorker::end(std::unique_ptr<Impl> impl) {
  if (impl->options().clock != &steady_clock()) {
    return;  // in virtual time nothing hangs by itself, and the clock may not outlive this
  }
  const std::uint32_t rank = impl->options().rank;
  const Duration limit = end_limit(impl->shutdown());
  if (!end_within(std::move(impl), limit)) {
    std::fprintf(stderr,
                 "cairn: the end of rank %u was given up after %lld ms: I/O has not returned; its host memory and file "
                 "stay in use until it does, or until the process ends\n",
                 rank, static_cast<long long>(std::chrono::duration_cast<std::chrono::milliseconds>(limit).count()));
  }
}

Result<std::unique_ptr<RankWorker>> RankWorker::begin(std::unique_ptr<RankLine> line, Options options) {
  if (options.rank >= options.ranks) {
    return fail(ErrorCode::kInvalidArgument,
                str_cat("rank ", options.rank, " of ", options.ranks, "; they count from 0"));
  }
  auto impl = std::make_unique<Impl>(std::move(line), std::move(options));
  if (Status taken = impl->wait_for_leader(); !taken) {
    end(std::move(impl));
    return Unexpected(taken.error());
  }
  return std::unique_ptr<RankWorker>(new RankWorker(std::move(impl)));
}

Result<std::unique_ptr<RankWorker>> RankWorker::connect(const RankAddress& leader, Options options) {
  Result<std::unique_ptr<RankLine>> line =
      make_socket_line(leader, {.rank = options.rank, .ranks = options.ranks, .secret = options.secret});
  if (!line) {
    return Unexpected(std::move(line).error());
  }
  return begin(*std::move(line), std::move(options));
}

Result<std::unique_ptr<RankWorker>> RankWorker::join(RankGroup& leader, Options options) {
  std::unique_ptr<RankLine> line = make_local_line(leader, options.rank);
  return begin(std::move(line), std::move(options));
}

bool RankWorker::follow(const LeaderId& leader, TimePoint deadline) { return impl_->work().follow(leader, deadline); }
void RankWorker::reached(StepMark mark, StepEventPtr after) { impl_->work().reached(mark, std::move(after)); }
void RankWorker::expect(std::span<const BlockId> device_blocks) { impl_->work().expect(device_blocks); }
Status RankWorker::wait_for_layer(std::uint32_t model_layer, TimePoint deadline) {
  return impl_->work().wait_for_layer(model_layer, deadline);
}
std::vector<BlockId> RankWorker::lacking(std::uint32_t model_layer) const { return impl_->work().lacking(model_layer); }
void RankWorker::pass_over(std::span<const BlockId> device_blocks) { impl_->work().pass_over(device_blocks); }
bool RankWorker::fence(std::span<const BlockId> device_blocks, StepMark overwritten_in, TimePoint deadline) {
  return impl_->work().fence(device_blocks, overwritten_in, deadline);
}
RankWorker::State RankWorker::state() const { return impl_->state(); }

}  // namespace cairn
