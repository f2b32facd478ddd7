#include "tests/simulation/restart_world_testing.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <ostream>
#include <random>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "cairn/base/check.h"
#include "cairn/base/str_cat.h"
#include "cairn/connector/iteration_metadata.h"
#include "cairn/connector/operation_outcomes.h"
#include "cairn/connector/operation_testing.h"
#include "cairn/connector/worker_operations.h"
#include "cairn/connector/worker_steps.h"
#include "cairn/memory/system_region.h"
#include "cairn/rank/rank.h"
#include "cairn/rank/rank_memory.h"
#include "cairn/rank/rank_routes.h"
#include "cairn/rank/rank_transfers.h"
#include "cairn/transfer/step_event_testing.h"

namespace cairn::testing {
namespace {

constexpr std::uint32_t kBlocks = 6;
constexpr KvShape kShape{.layers = 1, .kv = 2, .page_size = 4, .heads = 1, .head_size = 8, .element_bits = 16};
constexpr std::uint32_t kCalmIterations = 6;
// Much longer than the thread of RankTransfers takes to begin a copy; only a defect reaches it.
constexpr std::chrono::seconds kPatience{20};

// The content of a block: the number of the write; 0 before the first.
using Stamp = std::uint64_t;

// Every read advances it by a millisecond, so that waits end.
class TickingClock final : public Clock {
 public:
  [[nodiscard]] TimePoint now() const override { return TimePoint(std::chrono::milliseconds(ticks_.fetch_add(1))); }

 private:
  mutable std::atomic<std::int64_t> ticks_{0};
};

// Names a copy in all worlds of a seed: the scheduler's number and the operation's.
using CopyName = std::pair<std::uint64_t, std::uint64_t>;

// What the executor and the rank have reported, on any thread.
struct Reported {
  std::mutex mutex;
  std::condition_variable changed;
  std::set<CopyName> begun;                                   // submitted to the executor, or answered
  std::map<CopyName, Stamp> read;                             // by saves
  std::deque<std::pair<std::uint32_t, RankMessage>> answers;  // with their generation
};

// Copies one block at a time, on demand: a save reads the device at that moment, a load writes to it.
class CrankedExecutor final : public TransferExecutor {
 public:
  CrankedExecutor(Reported& reported, std::vector<Stamp>& device) : reported_(reported), device_(device) {}
  ~CrankedExecutor() override {
    while (crank(0)) {
    }
  }
  Result<TransferId> submit(Transfer&& transfer) override {
    const BlockTag tag = transfer.blocks.front().tag;
    const std::lock_guard lock(reported_.mutex);
    pending_.push_back(std::move(transfer));
    reported_.begun.insert({tag.high, tag.low});
    reported_.changed.notify_all();
    return TransferId{++last_id_};
  }
  void cancel(TransferId /*transfer*/) override {}  // all of them have begun
  void check_deadlines() override {}
  [[nodiscard]] bool can_move(const CopyPlan& /*plan*/) const override { return true; }
  [[nodiscard]] ExecutorLoad load() const override { return {.limit = SIZE_MAX}; }
  [[nodiscard]] std::string describe() const override { return "cranked"; }

  [[nodiscard]] std::size_t pending() {
    const std::lock_guard lock(reported_.mutex);
    return pending_.size();
  }
  bool crank(std::size_t which) {
    Transfer transfer;
    {
      const std::lock_guard lock(reported_.mutex);
      if (which >= pending_.size()) {
        return false;
      }
      transfer = std::move(pending_[which]);
      pending_.erase(pending_.begin() + static_cast<std::ptrdiff_t>(which));
      const TransferBlock& block = transfer.blocks.front();
      // The tag tells the direction: loads have odd numbers.
      if (block.tag.low % 2 == 0) {
        reported_.read[{block.tag.high, block.tag.low}] = device_[block.pair.source];
      } else {
        device_[block.pair.destination] = (block.tag.high << 32U) + block.tag.low;
      }
    }
    transfer.done({.blocks = {BlockOutcome{}}, .error = {}});
    transfer.settled();
    return true;
  }

 private:
  Reported& reported_;
  std::vector<Stamp>& device_;
  std::vector<Transfer> pending_;
  std::uint64_t last_id_ = 0;
};

LayoutGroups make_device() {
  const BlockLayout::Options options{.shape = kShape, .blocks = kBlocks};
  const std::uint64_t bytes = BlockLayout::region_sizes(options)->front();
  BlockLayoutPtr layout = *BlockLayout::make(options, {*system_region({.size = bytes})});
  return *LayoutGroups::make(*LayerGroups::make(1, {{"all", kShape, {0}}}), {std::move(layout)});
}

ManagerConfig make_config() {
  ManagerConfig config;
  config.block_size = kShape.page_size;
  config.model = {.name = "restarts", .layers = 1, .heads = 1, .head_size = 8, .element_type = "f16"};
  config.device.blocks = kBlocks;
  config.device.memory = DeviceMemory::kSystem;
  config.host.blocks = kBlocks;
  return config;
}

}  // namespace

class RestartWorld::Impl {
 public:
  explicit Impl(const RestartOptions& options) : options_(options), random_(options.seed), device_(kBlocks, 0) {
    start_scheduler();
    start_rank();
  }

  std::string run() {
    for (step_ = 0; step_ < options_.steps && failure_.empty(); ++step_) {
      act();
      settle();
    }
    if (failure_.empty()) {
      calm_down();
    }
    return failure_.empty() ? "" : str_cat("step ", step_, ": ", failure_);
  }
  [[nodiscard]] const RestartCounts& counts() const { return counts_; }

 private:
  struct Content {  // of a device block, as the scheduler knows it
    Stamp stamp = 0;
    std::optional<std::uint64_t> iteration = {};  // that computed it
  };
  struct Operation {
    std::uint64_t number = 0;
    bool is_load = false;
    std::uint32_t block = 0;
    Stamp stamp = 0;  // that a save has to read, or a load brings
  };
  struct Scheduler {
    LeaderId id;
    std::uint64_t serial = 0;
    std::optional<std::uint64_t> iteration = {};  // the latest
    std::uint32_t generation = 0;
    std::uint64_t last_number = 0;
    std::vector<Content> content = std::vector<Content>(kBlocks);
    std::map<std::uint64_t, Operation> open = {};  // by number
    std::set<std::uint32_t> loading = {};          // blocks that a load may still write to
  };
  // A message of the engine's channel: the metadata, and what the step computes.
  struct Step {
    std::uint64_t serial = 0;
    LeaderId leader;
    std::uint64_t iteration = 0;
    std::vector<std::byte> metadata;
    std::vector<std::pair<std::uint32_t, Stamp>> writes;
  };
  struct DeviceStep {
    std::vector<std::pair<std::uint32_t, Stamp>> writes;
    std::shared_ptr<TestStep> event;
  };
  // Messages from a leader to the rank, on one connection.
  struct OnLine {
    std::optional<RankTransfer> copy = {};
    std::vector<std::byte> notice = {};
  };
  struct Mark {
    StepMark mark;
    std::shared_ptr<TestStep> event;
  };
  // The worker's rank: the real RankTransfers, and a connection that is open or not.
  class WorldRank final : public Rank {
   public:
    explicit WorldRank(Impl& world) : world_(world) {}
    bool follow(const LeaderId& leader, TimePoint deadline) override {
      if (world_.followed_ != leader) {
        world_.followed_ = leader;
        world_.marks_.clear();
      }
      return world_.transfers_->follow(leader, deadline);
    }
    void reached(StepMark mark, StepEventPtr after) override {
      world_.marks_.push_back({mark, std::static_pointer_cast<TestStep>(after)});
      world_.transfers_->reached(mark, std::move(after));
    }
    void reached_layers(std::uint64_t iteration, std::uint32_t layers, StepEventPtr after) override {
      world_.transfers_->reached_layers(iteration, layers, std::move(after));
    }
    void expect(std::span<const BlockId> blocks) override { world_.transfers_->expect(blocks); }
    Status wait_for_layer(std::uint32_t layer, TimePoint deadline) override {
      return world_.transfers_->wait_for_layer(layer, deadline);
    }
    [[nodiscard]] std::vector<BlockId> lacking(std::uint32_t layer) const override {
      return world_.transfers_->lacking(layer);
    }
    void pass_over(std::span<const BlockId> blocks) override { world_.transfers_->pass_over(blocks); }
    bool fence(std::span<const BlockId> blocks, StepMark overwritten_in, TimePoint deadline) override {
      return world_.transfers_->fence(blocks, overwritten_in, deadline);
    }
    [[nodiscard]] Rank::State state() const override {
      return {.is_connected = world_.is_connected_,
              .leader = world_.joined_,
              .generation = world_.joined_generation_,
              .transfers = world_.transfers_->counts().transfers};
    }

   private:
    Impl& world_;
  };

  std::uint32_t below(std::uint32_t n) { return static_cast<std::uint32_t>(random_() % n); }
  bool chance(double p) { return static_cast<double>(random_() >> 11U) * 0x1p-53 < p; }
  void say(const std::string& what) {
    if (options_.log != nullptr) {
      *options_.log << step_ << ": " << what << "\n";
    }
  }
  void wrong(const std::string& what) {
    if (failure_.empty()) {
      failure_ = what;
    }
    say("WRONG: " + what);
  }

  // --- beginnings ---
  void start_scheduler() {
    scheduler_ = {.id = {.started = schedulers_ + 1, .random = random_()}, .serial = schedulers_ + 1};
    ++schedulers_;
    last_stamp_ = 0;
    say(str_cat("scheduler ", scheduler_.serial, " starts"));
  }
  void start_rank() {
    steps_.reset();
    rank_.reset();
    transfers_.reset();
    operations_.emplace(clock_);
    while (!device_queue_.empty()) {
      device_queue_.pop_front();
    }
    std::ranges::fill(device_, Stamp{0});
    followed_.reset();
    marks_.clear();
    reported_.answers.clear();
    sent_.clear();
    is_connected_ = false;
    joined_ = {};
    const LayoutGroups device = make_device();
    const ManagerConfig config = make_config();
    const auto around = [this](ExecutorKind, std::unique_ptr<TransferExecutor>) -> std::unique_ptr<TransferExecutor> {
      auto made = std::make_unique<CrankedExecutor>(reported_, device_);
      executor_ = made.get();
      return made;
    };
    auto routes =
        RankRoutes::make(config, device.groups(), *RankMemory::make(config, device, RankClaim()), clock_, around);
    transfers_.emplace(1, clock_, [this](std::uint32_t generation, const RankMessage& message) {
      const std::lock_guard lock(reported_.mutex);
      if (const auto* done = std::get_if<RankTransferOutcome>(&message)) {
        reported_.begun.insert({joined_serial_, static_cast<std::uint64_t>(done->id)});
      }
      reported_.answers.emplace_back(generation, message);
      reported_.changed.notify_all();
    });
    transfers_->use(*std::move(routes));
    rank_.emplace(*this);
    steps_.emplace(*rank_, *operations_,
                   WorkerSteps::Options{.layers = 1,
                                        .blocks = kBlocks,
                                        .clock = &clock_,
                                        .fence_limit = std::chrono::milliseconds(2),
                                        .layer_limit = std::chrono::milliseconds(2),
                                        .answer_limit = std::chrono::hours(1)});
  }

  // --- steps ---
  void act() {
    const std::uint32_t what = below(100);
    if (what < 30) {
      build();
    } else if (what < 55) {
      take_metadata();
    } else if (what < 68) {
      run_device();
    } else if (what < 78) {
      deliver();
    } else if (what < 88) {
      crank();
    } else if (what < 93) {
      is_connected_ ? (chance(0.3) ? hang_up() : void()) : join();
    } else if (what < 95) {
      restart_scheduler();
    } else if (what < 96) {
      restart_rank();
    } else {
      take_answers();
    }
  }

  void restart_scheduler() {
    ++counts_.schedulers;
    start_scheduler();
    // The rank gets to know it later; its answers meanwhile are lost.
  }

  // The engine knows that its worker is new: the old worker's KV is lost.
  void restart_rank() {
    say("the rank starts again");
    ++counts_.ranks;
    is_connected_ = false;
    forget_rank();
    scheduler_.loading.clear();
    for (Content& content : scheduler_.content) {
      content = {};
    }
    channel_.clear();  // it was connected to the dead worker
    bound_serial_ = 0;
    start_rank();
  }

  // All transfers of the rank have failed. Which blocks loads may still write to is known when it is back.
  void forget_rank() {
    for (const auto& [number, operation] : scheduler_.open) {
      counts_.failed += operation.is_load ? 0 : 1;
    }
    scheduler_.open.clear();
    line_.clear();
  }

  void join() {
    if (!transfers_->is_quiet()) {
      return;
    }
    ++scheduler_.generation;
    if (chance(0.3)) {
      say("a join breaks before the rank hears of it");
      return;
    }
    joined_ = scheduler_.id;
    {
      const std::lock_guard lock(reported_.mutex);
      joined_serial_ = scheduler_.serial;
      reported_.answers.clear();
    }
    joined_generation_ = scheduler_.generation;
    is_connected_ = true;
    scheduler_.loading.clear();
    if (!followed_) {
      followed_ = joined_;
    }
    transfers_->begin(joined_generation_, joined_);
    say(str_cat("the rank joins scheduler ", scheduler_.serial, ", generation ", joined_generation_));
  }

  void hang_up() {
    say("the line breaks");
    transfers_->lose();
    is_connected_ = false;
    sent_.clear();
    if (joined_serial_ == scheduler_.serial) {
      forget_rank();
    }
    line_.clear();
  }

  [[nodiscard]] bool is_led() const { return is_connected_ && joined_serial_ == scheduler_.serial; }

  // The scheduler's next iteration: blocks computed in the last one are saved, other blocks are overwritten.
  void build() {
    Scheduler& s = scheduler_;
    const std::optional<std::uint64_t> before = s.iteration;
    const std::uint64_t number = before ? *before + 1 + below(2) : below(3);
    IterationMetadata metadata{.leader = s.id, .iteration = number};
    Step step{.serial = s.serial, .leader = s.id, .iteration = number, .metadata = {}, .writes = {}};
    std::set<std::uint32_t> saved;
    for (std::uint32_t block = 0; block < kBlocks; ++block) {
      if (before && s.content[block].iteration == before && chance(0.8)) {
        give_out(metadata, {.is_load = false, .block = block, .stamp = s.content[block].stamp},
                 StepMark::computed(*before));
        saved.insert(block);
      }
    }
    for (std::uint32_t i = 1 + below(2); i > 0; --i) {
      const std::uint32_t block = below(kBlocks);
      if (saved.contains(block) || s.loading.contains(block)) {
        continue;
      }
      for (const auto& [open, operation] : s.open) {
        if (!operation.is_load && operation.block == block) {
          metadata.fences.push_back(fenced_operation(
              {.slot = operation.block, .number = static_cast<std::uint32_t>(open)}, {BlockId{block}}));
        }
      }
      if (chance(0.2) && metadata.fences.empty() && is_led()) {
        s.loading.insert(block);
        s.content[block] = {};
        give_out(metadata, {.is_load = true, .block = block}, StepMark::begun(number));
      } else {
        const Stamp stamp = (s.serial << 32U) + 0x80000000U + ++last_stamp_;
        s.content[block] = {.stamp = stamp, .iteration = number};
        step.writes.emplace_back(block, stamp);
      }
    }
    s.iteration = number;
    metadata.encode(step.metadata);
    channel_.push_back(std::move(step));
    say(str_cat("scheduler ", s.serial, " builds iteration ", number, ": ", metadata.saves.size(), " saves, ",
                metadata.loads.size(), " loads, ", metadata.fences.size(), " fences"));
  }

  void give_out(IterationMetadata& metadata, Operation operation, StepMark not_before) {
    Scheduler& s = scheduler_;
    s.last_number += 2;  // loads have odd numbers
    operation.number = s.last_number + (operation.is_load ? 1 : 0);
    const OperationId id{.slot = operation.block, .number = static_cast<std::uint32_t>(operation.number)};
    const std::vector<BlockId> blocks = {BlockId{operation.block}};
    if (operation.is_load) {
      operation.stamp = (s.serial << 32U) + operation.number;
      metadata.loads.push_back(load_operation(id, RequestId(operation.number), blocks));
    } else {
      metadata.saves.push_back(save_operation(id, RequestId(operation.number), blocks));
    }
    if (!is_led()) {
      counts_.failed += operation.is_load ? 0 : 1;
      return;  // there is no rank
    }
    s.open.emplace(operation.number, operation);
    line_.push_back({.copy = RankTransfer{.id = TransferId{operation.number},
                                          .from = operation.is_load ? CacheLevel::kG2 : CacheLevel::kG1,
                                          .to = operation.is_load ? CacheLevel::kG1 : CacheLevel::kG2,
                                          .not_before = not_before,
                                          .time_left = Duration::max(),
                                          .pairs = {{operation.block, operation.block}},
                                          .tags = {{.high = s.serial, .low = operation.number}}}});
  }

  // The engine's worker gets its next metadata. Metadata of an old scheduler may come after that of a new one.
  void take_metadata() {
    if (channel_.empty()) {
      return;
    }
    std::size_t which = 0;
    if (chance(0.3)) {  // the first metadata of another scheduler overtakes
      const auto other =
          std::ranges::find_if(channel_, [&](const Step& step) { return step.serial != channel_.front().serial; });
      which = other == channel_.end() ? 0 : static_cast<std::size_t>(other - channel_.begin());
    }
    const Step step = channel_[which];
    const bool is_replaced = step.serial < bound_serial_;
    const Status bound = steps_->bind(step.metadata);
    say(str_cat("iteration ", step.iteration, " of scheduler ", step.serial, ": ",
                bound ? "bound" : bound.error().to_string()));
    if (!bound && bound.error().code == ErrorCode::kUnavailable && !is_replaced) {
      ++counts_.retried;
      bound_serial_ = step.serial;
      return;  // the step waits
    }
    channel_.erase(channel_.begin() + static_cast<std::ptrdiff_t>(which));
    if (is_replaced) {
      ++counts_.refused;
      if (bound) {
        wrong(str_cat("iteration ", step.iteration, " of scheduler ", step.serial, ", which was replaced, was bound"));
      }
      return;  // the step is not run
    }
    if (!bound) {
      wrong(str_cat("iteration ", step.iteration, " was not bound: ", bound.error().to_string()));
      return;
    }
    ++counts_.binds;
    bound_serial_ = step.serial;
    CAIRN_CHECK(steps_->start_load({}).has_value(), "what is bound can be started");
    const auto event = std::make_shared<TestStep>();
    device_queue_.push_back({step.writes, event});
    CAIRN_CHECK(steps_->save_step(event).has_value(), "what is started can be saved");
    (void)steps_->take_outcomes();
  }

  void run_device() {
    if (device_queue_.empty()) {
      return;
    }
    const DeviceStep step = std::move(device_queue_.front());
    device_queue_.pop_front();
    const bool fails = !is_calm_ && chance(0.03);
    {
      const std::lock_guard lock(reported_.mutex);
      for (const auto& [block, stamp] : step.writes) {
        device_[block] = fails ? 0 : stamp;
      }
    }
    counts_.events_failed += fails ? 1 : 0;
    say(fails ? "a step of the device fails" : "the device computes a step");
    step.event->end(fails ? StepState::kFailed : StepState::kOver);
  }

  void deliver() {
    if (!is_connected_ || line_.empty()) {
      return;
    }
    const OnLine next = std::move(line_.front());
    line_.pop_front();
    if (next.copy) {
      sent_.push_back(*next.copy);
      transfers_->submit(*next.copy);
    } else {
      operations_->receive(joined_, next.notice);
    }
  }

  void crank() {
    if (const std::size_t pending = executor_->pending(); pending > 0) {
      (void)executor_->crank(below(static_cast<std::uint32_t>(pending)));
    }
  }

  void take_answers() {
    std::deque<std::pair<std::uint32_t, RankMessage>> answers;
    {
      const std::lock_guard lock(reported_.mutex);
      answers.swap(reported_.answers);
    }
    for (const auto& [generation, message] : answers) {
      if (!is_led() || generation != scheduler_.generation) {
        continue;  // there is no receiver
      }
      if (const auto* done = std::get_if<RankTransferOutcome>(&message)) {
        take_answer(*done);
      } else if (const auto* settled = std::get_if<RankSettled>(&message)) {
        end_load(static_cast<std::uint64_t>(settled->id));
      }
    }
  }

  void take_answer(const RankTransferOutcome& done) {
    const auto number = static_cast<std::uint64_t>(done.id);
    const auto found = scheduler_.open.find(number);
    if (found == scheduler_.open.end()) {
      return;
    }
    const Operation operation = found->second;
    const bool is_done = done.states.front() == BlockState::kDone;
    OperationOutcomes notice;
    const OperationId id{.slot = operation.block, .number = static_cast<std::uint32_t>(number)};
    if (operation.is_load) {
      if (is_done) {
        scheduler_.content[operation.block] = {.stamp = operation.stamp, .iteration = scheduler_.iteration};
      }
      notice.loads.push_back({id, is_done ? 1U : 0U});
    } else {
      scheduler_.open.erase(found);
      ++(is_done ? counts_.saved : counts_.failed);
      if (is_done) {
        check_save(operation);
      } else if (is_calm_) {
        wrong(str_cat("save ", number, " failed although nobody died: ", done.error));
      }
      notice.saves.push_back(id);
    }
    line_.push_back({.copy = {}, .notice = notice.encode()});
  }

  void end_load(std::uint64_t number) {
    const auto found = scheduler_.open.find(number);
    if (found != scheduler_.open.end() && found->second.is_load) {
      scheduler_.loading.erase(found->second.block);
      scheduler_.open.erase(found);
    }
  }

  void check_save(const Operation& save) {
    const std::lock_guard lock(reported_.mutex);
    const Stamp read = reported_.read[{scheduler_.serial, save.number}];
    if (read != save.stamp) {
      wrong(str_cat("save ", save.number, " of scheduler ", scheduler_.serial, " is done and read ", read, " of block ",
                    save.block, " instead of ", save.stamp));
    }
  }

  // Whether RankTransfers has to have begun or answered the copy by now.
  [[nodiscard]] bool is_due(const RankTransfer& copy) const {
    if (followed_ != joined_) {
      return false;
    }
    StepMark now;
    for (const Mark& mark : marks_) {
      const StepState state = mark.event == nullptr ? StepState::kOver : mark.event->state();
      if (state == StepState::kPending) {
        break;
      }
      if (state == StepState::kFailed) {
        return copy.not_before <= marks_.back().mark;  // events are not polled before the mark is named
      }
      now = mark.mark;
    }
    return copy.not_before <= now;
  }

  // Waits until the thread of RankTransfers has begun what is due.
  void settle() {
    for (const RankTransfer& copy : sent_) {
      if (!is_due(copy)) {
        continue;
      }
      const CopyName name{joined_serial_, static_cast<std::uint64_t>(copy.id)};
      std::unique_lock lock(reported_.mutex);
      if (!reported_.changed.wait_for(lock, kPatience, [&] { return reported_.begun.contains(name); })) {
        lock.unlock();
        wrong(str_cat("copy ", name.second, " of scheduler ", name.first, " is due and does not begin"));
        return;
      }
    }
    std::erase_if(sent_, [this](const RankTransfer& copy) { return is_due(copy); });
  }

  // A last scheduler starts, and from here on nothing dies.
  void calm_down() {
    say("calm");
    restart_scheduler();
    is_calm_ = true;
    if (is_connected_) {
      hang_up();
    }
    for (std::uint32_t i = 0; i < kCalmIterations && failure_.empty(); ++i) {
      // Everything in flight ends.
      for (int turn = 0; turn < 400 && failure_.empty(); ++turn) {
        if (!is_connected_) {
          join();
        }
        run_device();
        deliver();
        crank();
        take_answers();
        settle();
        if (i == 0 && !channel_.empty()) {
          take_metadata();
        }
        if (is_connected_ && channel_.empty() && line_.empty() && device_queue_.empty() && transfers_->is_quiet()) {
          break;
        }
      }
      const std::uint64_t binds = counts_.binds;
      build();
      while (!channel_.empty() && failure_.empty()) {
        const std::size_t left = channel_.size();
        take_metadata();
        if (channel_.size() == left) {
          wrong("a step waits although nothing is in flight");
        }
      }
      if (failure_.empty() && counts_.binds == binds) {
        wrong("the last scheduler's iteration was not bound");
      }
      settle();
    }
  }

  const RestartOptions options_;
  std::mt19937_64 random_;
  TickingClock clock_;
  Reported reported_;
  std::vector<Stamp> device_;  // under Reported's lock
  RestartCounts counts_;
  std::uint32_t step_ = 0;
  std::string failure_;
  bool is_calm_ = false;

  std::uint64_t schedulers_ = 0;
  Scheduler scheduler_;
  Stamp last_stamp_ = 0;
  std::deque<Step> channel_;
  std::deque<OnLine> line_;
  std::uint64_t bound_serial_ = 0;  // whose metadata the worker took last

  bool is_connected_ = false;
  LeaderId joined_;
  std::uint64_t joined_serial_ = 0;  // under Reported's lock where other threads are
  std::uint32_t joined_generation_ = 0;
  std::optional<LeaderId> followed_;
  std::deque<Mark> marks_;         // of the leader that is followed
  std::deque<RankTransfer> sent_;  // to the rank, and not known to have begun
  std::deque<DeviceStep> device_queue_;
  CrankedExecutor* executor_ = nullptr;
  std::optional<WorkerOperations> operations_;
  std::optional<RankTransfers> transfers_;
  std::optional<WorldRank> rank_;
  std::optional<WorkerSteps> steps_;
};

RestartCounts& RestartCounts::operator+=(const RestartCounts& other) {
  schedulers += other.schedulers;
  ranks += other.ranks;
  binds += other.binds;
  refused += other.refused;
  retried += other.retried;
  saved += other.saved;
  failed += other.failed;
  events_failed += other.events_failed;
  return *this;
}

RestartWorld::RestartWorld(const RestartOptions& options) : impl_(std::make_unique<Impl>(options)) {}
RestartWorld::~RestartWorld() = default;
std::string RestartWorld::run() { return impl_->run(); }
const RestartCounts& RestartWorld::counts() const { return impl_->counts(); }

}  // namespace cairn::testing
