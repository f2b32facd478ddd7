#include "cairn/rank/rank.h"

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
#include "cairn/manager/tier_memory.h"
#include "cairn/rank/rank_connection.h"
#include "cairn/rank/rank_memory.h"
#include "cairn/rank/rank_routes.h"
#include "cairn/rank/rank_transfers.h"

namespace cairn {

namespace {

// Pause between two attempts to reach the leader.
constexpr Duration kFirstPause = std::chrono::milliseconds(20);
constexpr Duration kLongestPause = std::chrono::seconds(2);
// A leader that sends nothing for so many heartbeats, or for this long if that is longer, is gone.
constexpr int kSilentHeartbeats = 10;
constexpr Duration kLeastSilence = std::chrono::seconds(1);

RankClaim claim_of(const Rank::Options& options) {
  RankClaim claim{.rank = options.rank,
                  .ranks = options.ranks,
                  .layers = options.device.groups().model_layers(),
                  .first_layer = options.first_layer,
                  .groups = static_cast<std::uint32_t>(options.device.groups().groups().size())};
  for (const BlockLayoutPtr& layout : options.device.layouts()) {
    const std::uint64_t bytes = layout->shape().block_bytes();
    claim.block_bytes += bytes;
    claim.padded_bytes += (bytes + kSharedBlockAlignment - 1) / kSharedBlockAlignment * kSharedBlockAlignment;
  }
  return claim;
}

Status check_rank(const Rank::Options& options) {
  CAIRN_TRY(options.ranks.validate());
  return options.rank < options.ranks.count()
             ? Status()
             : fail(ErrorCode::kInvalidArgument,
                    str_cat("rank ", options.rank, " of ", options.ranks.to_string(), "; ranks count from 0"));
}

// The connection to the leader, the thread that serves it, and the transfers.
class RankThread {
 public:
  RankThread(std::unique_ptr<RankConnection> connection, Rank::Options options)
      : options_(std::move(options)),
        connection_(std::move(connection)),
        transfers_(
            options_.device.groups().model_layers(), *options_.clock,
            [this](std::uint32_t generation, const RankMessage& message) { connection_->send(generation, message); }),
        thread_(start_own_thread("cairn-rank", [this] { serve(); })) {}
  RankThread(const RankThread&) = delete;
  RankThread& operator=(const RankThread&) = delete;

  ~RankThread() {
    {
      const MutexLock lock(mutex_);
      is_stopping_ = true;
      changed_.notify_all();
    }
    transfers_.wake();
    connection_->wake();
    thread_.join();
  }

  // Waits until the rank is ready for the first time. Returns the error of the last attempt if that takes too long.
  [[nodiscard]] Status wait_for_leader() {
    const TimePoint latest = deadline_after(
        steady_clock().now(), limited(options_.first_connection) + options_.ranks.count() * kRankReadyLimit);
    const MutexLock lock(mutex_);
    for (;;) {
      if (state_.is_connected) {
        return {};
      }
      if (unfit_) {
        return Unexpected(*unfit_);
      }
      const TimePoint now = steady_clock().now();
      const TimePoint deadline = std::min(first_connection_by_, latest);
      if (now >= deadline) {
        return fail(ErrorCode::kUnavailable,
                    state_.reason.empty() ? "the leader has not accepted this rank in time" : state_.reason);
      }
      changed_.wait_for(mutex_, deadline - now);
    }
  }

  [[nodiscard]] RankTransfers& transfers() { return transfers_; }
  [[nodiscard]] const Rank::Options& options() const { return options_; }
  [[nodiscard]] Duration shutdown() const { return Duration(shutdown_.load()); }
  [[nodiscard]] Rank::State state() const {
    const RankTransfers::Counts counts = transfers_.counts();
    const MutexLock lock(mutex_);
    Rank::State state = state_;
    state.transfers = counts.transfers;
    state.done = counts.done;
    state.failed = counts.failed;
    return state;
  }

 private:
  void serve() {
    Duration pause = kFirstPause;
    while (!is_stopping()) {
      // No new generation before all transfers of the old one have ended, which may be never.
      if (!transfers_.wait_until_quiet(TimePoint::max())) {
        continue;
      }
      const bool was_connected = hang_up(converse());
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

  // Returns whether the rank was connected.
  bool hang_up(const Error& ended) {
    transfers_.lose();
    bool was_connected = false;
    {
      const MutexLock lock(mutex_);
      state_.reason = ended.message;
      was_connected = std::exchange(state_.is_connected, false);
      changed_.notify_all();
    }
    connection_->close();
    return was_connected;
  }

  // Talks to the leader until the connection ends. Returns why.
  [[nodiscard]] Error converse() {
    if (Status opened = connection_->open(); !opened) {
      return opened.error();
    }
    generation_ = 0;
    TimePoint heard = steady_clock().now();
    while (!is_stopping()) {
      const Duration silence = std::max(kSilentHeartbeats * heartbeat_, kLeastSilence);
      const Duration quiet_for = steady_clock().now() - heard;
      // Before the welcome there are no heartbeats: the leader may open later.
      if (generation_ != 0 && quiet_for >= silence) {
        return {ErrorCode::kUnavailable, str_cat("the leader said nothing for ", quiet_for.count() / 1'000'000, " ms")};
      }
      Result<std::optional<RankDecoder::Received>> next =
          connection_->receive(generation_ == 0 ? kLeastSilence : silence - quiet_for);
      if (!next) {
        return std::move(next).error();
      }
      if (*next) {
        if (Status taken = take(**next); !taken) {
          return taken.error();
        }
        heard = steady_clock().now();  // after take(), whose time does not count as silence
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
    if (generation_ == 0 && std::holds_alternative<RankPing>(received.message)) {
      extend_first_connection(options_.first_connection);  // it waits for another rank before it welcomes this one
    }
    if (generation_ == 0 || received.generation != generation_) {
      return {};  // of an earlier connection
    }
    if (const auto* transfer = std::get_if<RankTransfer>(&received.message)) {
      transfers_.submit(*transfer);
    } else if (const auto* cancel = std::get_if<RankCancel>(&received.message)) {
      transfers_.cancel(cancel->id);
    } else if (const auto* broadcast = std::get_if<RankBroadcast>(&received.message)) {
      if (options_.on_broadcast) {
        options_.on_broadcast(leader_, broadcast->bytes);
      }
    } else if (const auto* ping = std::get_if<RankPing>(&received.message)) {
      connection_->send(generation_, RankPong{.number = ping->number});
    } else {
      return fail(ErrorCode::kCorrupt, "the leader sent a message that only ranks send");
    }
    return {};
  }

  [[nodiscard]] Status join(const RankWelcome& welcome) {
    if (generation_ != 0 || welcome.generation == 0) {
      return fail(ErrorCode::kCorrupt, "the leader sent a second welcome, or generation 0");
    }
    extend_first_connection(kRankReadyLimit);
    if (Status made = make_memory(welcome); !made) {
      connection_->send(welcome.generation, RankRefusal{.reason = made.error().message});
      const MutexLock lock(mutex_);
      unfit_ = made.error();
      return made;
    }
    leader_ = welcome.leader;
    generation_ = welcome.generation;
    heartbeat_ = std::clamp<Duration>(welcome.heartbeat, Duration::zero(), std::chrono::hours(24));
    transfers_.begin(generation_, leader_);
    {
      const MutexLock lock(mutex_);
      state_.is_connected = true;
      state_.leader = leader_;
      state_.generation = generation_;
      state_.reason.clear();
      unfit_.reset();
      changed_.notify_all();
    }
    connection_->send(generation_, RankReady{.block_bytes = block_bytes_, .is_reserved = is_reserved_});
    return {};
  }

  void extend_first_connection(Duration longest) {
    const MutexLock lock(mutex_);
    first_connection_by_ = deadline_after(steady_clock().now(), longest);
    changed_.notify_all();
  }

  // Memory and file stay if the configuration is the same: the leader knows what is in them.
  [[nodiscard]] Status make_memory(const RankWelcome& welcome) {
    const std::string& text = welcome.config;
    if (config_ == text && has_same_storage(welcome)) {
      return {};
    }
    config_.reset();
    transfers_.use(nullptr);  // frees the old memory and closes the old file first
    CAIRN_TRY_ASSIGN(const ManagerConfig config, ManagerConfig::from_toml(text, "the leader's configuration"));
    shutdown_ = config.shutdown.count();
    CAIRN_TRY_ASSIGN(RankMemory memory, RankMemory::make(config, options_.device, claim_of(options_),
                                                         {.store = welcome.store, .host_memory = welcome.host_memory}));
    block_bytes_ = memory.block_bytes();
    is_reserved_ = memory.is_reserved();
    {
      const MutexLock lock(mutex_);
      state_.damage = memory.damage();
      state_.is_reserved = memory.is_reserved();
    }
    CAIRN_TRY_ASSIGN(
        std::unique_ptr<RankRoutes> routes,
        RankRoutes::make(config, options_.device.groups(), std::move(memory), *options_.clock, options_.around));
    transfers_.use(std::move(routes));
    config_ = text;
    is_shared_ = welcome.store != RankStore::kOwn;
    host_memory_ = welcome.host_memory;
    return {};
  }

  // A leader that was started again has made other host memory for replicas. Which of them is the keeper does not matter once
  // the file is open.
  [[nodiscard]] bool has_same_storage(const RankWelcome& welcome) const {
    const bool has_memory = host_memory_ != nullptr;
    return is_shared_ == (welcome.store != RankStore::kOwn) && has_memory == (welcome.host_memory != nullptr) &&
           (!has_memory || host_memory_->is_same(*welcome.host_memory));
  }

  const Rank::Options options_;
  const std::unique_ptr<RankConnection> connection_;  // outlives the transfers, which send through it
  RankTransfers transfers_;
  mutable Mutex mutex_{LockRank::kRankConnection};
  std::condition_variable_any changed_;
  Rank::State state_ CAIRN_GUARDED_BY(mutex_);
  std::optional<Error> unfit_ CAIRN_GUARDED_BY(mutex_);  // why the leader's configuration does not fit this rank
  bool is_stopping_ CAIRN_GUARDED_BY(mutex_) = false;
  TimePoint first_connection_by_ CAIRN_GUARDED_BY(mutex_) = deadline_after(steady_clock().now(),
                                                                           options_.first_connection);
  std::atomic<Duration::rep> shutdown_ = Duration(std::chrono::seconds(5)).count();  // the leader's, once it is known
  // Of the thread alone.
  std::optional<std::string> config_;  // of the present memory
  bool is_shared_ = false;             // with replicas
  SharedMemoryPtr host_memory_;        // the same, if it is
  std::uint64_t block_bytes_ = 0;
  bool is_reserved_ = true;
  std::uint32_t generation_ = 0;  // of this connection; 0 before the welcome
  LeaderId leader_;               // which sent the welcome
  Duration heartbeat_ = {};
  std::thread thread_;
};

// The end of a rank: I/O that does not return is left to a thread of its own.
void end(std::unique_ptr<RankThread> thread) {
  if (thread->options().clock != &steady_clock()) {
    return;  // in virtual time nothing hangs by itself, and the clock may not outlive this call
  }
  const std::uint32_t rank = thread->options().rank;
  const Duration limit = end_limit(thread->shutdown());
  if (!end_within(std::move(thread), limit)) {
    std::fprintf(
        stderr,
        "cairn: the shutdown of rank %u timed out after %lld ms: I/O has not returned; its host memory and file "
        "stay in use until it does, or until the process ends\n",
        rank, static_cast<long long>(std::chrono::duration_cast<std::chrono::milliseconds>(limit).count()));
  }
}

class ConnectedRank final : public Rank {
 public:
  explicit ConnectedRank(std::unique_ptr<RankThread> thread) : thread_(std::move(thread)) {}
  ~ConnectedRank() override { end(std::move(thread_)); }

  bool follow(const LeaderId& leader, TimePoint deadline) override {
    return thread_->transfers().follow(leader, deadline);
  }
  void reached(StepMark mark, StepEventPtr after) override { thread_->transfers().reached(mark, std::move(after)); }
  void reached_layers(std::uint64_t iteration, std::uint32_t layers, StepEventPtr after) override {
    thread_->transfers().reached_layers(iteration, layers, std::move(after));
  }
  void expect(std::span<const BlockId> device_blocks) override { thread_->transfers().expect(device_blocks); }
  Status wait_for_layer(std::uint32_t model_layer, TimePoint deadline) override {
    return thread_->transfers().wait_for_layer(model_layer, deadline);
  }
  std::vector<BlockId> lacking(std::uint32_t model_layer) const override {
    return thread_->transfers().lacking(model_layer);
  }
  void pass_over(std::span<const BlockId> device_blocks) override { thread_->transfers().pass_over(device_blocks); }
  bool fence(std::span<const BlockId> device_blocks, StepMark overwritten_in, TimePoint deadline) override {
    return thread_->transfers().fence(device_blocks, overwritten_in, deadline);
  }
  State state() const override { return thread_->state(); }

 private:
  std::unique_ptr<RankThread> thread_;
};

Result<std::unique_ptr<Rank>> start(std::unique_ptr<RankConnection> connection, Rank::Options options) {
  auto thread = std::make_unique<RankThread>(std::move(connection), std::move(options));
  if (Status accepted = thread->wait_for_leader(); !accepted) {
    end(std::move(thread));
    return Unexpected(accepted.error());
  }
  return std::unique_ptr<Rank>(std::make_unique<ConnectedRank>(std::move(thread)));
}

}  // namespace

Result<std::unique_ptr<Rank>> Rank::connect(const RankAddress& leader, Options options) {
  CAIRN_TRY(check_rank(options));
  CAIRN_TRY_ASSIGN(std::unique_ptr<RankConnection> connection,
                   make_socket_connection(leader, claim_of(options), options.secret));
  return start(std::move(connection), std::move(options));
}

Result<std::unique_ptr<Rank>> Rank::join(LocalLeader& leader, Options options) {
  CAIRN_TRY(check_rank(options));
  std::unique_ptr<RankConnection> connection = make_local_connection(leader, claim_of(options));
  return start(std::move(connection), std::move(options));
}

}  // namespace cairn
