#include "cairn/offload/offloader.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <utility>

#include "cairn/base/check.h"
#include "cairn/base/deadline.h"
#include "cairn/base/mutex.h"
#include "cairn/base/str_cat.h"
#include "cairn/offload/copy_loan.h"
#include "cairn/offload/offload_candidates.h"
#include "cairn/offload/offload_chooser.h"
#include "cairn/offload/offload_inbox.h"
#include "cairn/offload/offload_requests.h"
#include "cairn/transfer/in_step_mark.h"

namespace cairn {

std::string_view to_string(OffloadRefusal refusal) {
  constexpr std::array<std::string_view, kOffloadRefusals> kNames = {
      "too short",     "never seen twice", "would not last", "over budget", "low priority",
      "already below", "in flight",        "shed",           "gone",        "no room",
      "tier out",      "failed",           "cancelled",      "no parent",   "filtered"};
  return kNames[static_cast<std::size_t>(refusal)];
}

namespace {

// Time until a full executor is tried again; it has no callback for room.
constexpr Duration kRetryAfter = std::chrono::milliseconds(1);
// Batches at once of what the engine's present step computes.
constexpr std::uint32_t kInStepBatches = 64;

std::optional<OffloadRefusal> refusal_of(BlockState state) {
  switch (state) {
    case BlockState::kDone:
      return std::nullopt;
    case BlockState::kCancelled:
      return OffloadRefusal::kCancelled;
    case BlockState::kFailed:
    case BlockState::kMismatch:
    case BlockState::kExpired:
    case BlockState::kGone:
      break;
  }
  return OffloadRefusal::kFailed;
}

// Candidates that the inbox holds, if the options leave the bound to the link. The least is more than a small tier has, whose
// blocks are registered and used more than once between two looks; the most is a million tokens, 2 MiB.
constexpr std::uint32_t kLeastInbox = 4096;
constexpr std::uint32_t kMostInbox = 65536;

OffloadInbox::Interests interests_of(const OffloadOptions& options, const BlockPool* upper, bool has_user_filter) {
  const bool by_itself = options.mode != OffloadMode::kOff && upper != nullptr;
  return {.candidates = by_itself,
          .uses = by_itself && (options.counts_uses() || has_user_filter),
          // A block that was refused when it was new may be worth a copy when it is used again.
          .used_again = by_itself && (options.least_uses > 1 || has_user_filter),
          .bound = options.queue == 0 && upper != nullptr ? std::clamp(upper->capacity(), kLeastInbox, kMostInbox)
                                                          : options.queue};
}

// The highest position of these blocks in their sequences.
template <typename Blocks, typename KeyOf>
std::uint32_t last_position(const Blocks& blocks, KeyOf key_of) {
  std::uint32_t last = 0;
  for (const auto& block : blocks) {
    last = std::max(last, std::invoke(key_of, block).position());
  }
  return last;
}

// As many blocks as the pool has room for, at most `count`.
std::optional<MutableBlocks> allocate_up_to(BlockPool& pool, std::uint32_t count, TenantId tenant) {
  if (Result<MutableBlocks> blocks = pool.allocate(count, tenant)) {
    return *std::move(blocks);
  }
  for (count = std::min(count - 1, pool.counts().available()); count > 0; count /= 2) {
    if (Result<MutableBlocks> fewer = pool.allocate(count, tenant)) {
      return *std::move(fewer);
    }
  }
  return std::nullopt;
}

}  // namespace

// Moves what the chooser chooses: requests, batches in flight, fences. One lock; callbacks are collected and called after it.
class Offloader::Impl {
 public:
  Impl(TierLink& link, BlockRegistry& registry, const OffloadOptions& options, const Clock& clock,
       std::function<void()> wake, AdmissionFilter filter, UserFilter&& user_filter);
  ~Impl();

  void registered(std::span<const ResidentBlock> blocks);
  void used(std::span<const BlockKey> keys);
  void used_by_engine(std::span<const BlockKey> keys);
  [[nodiscard]] Result<OffloadRequestId> offload(EngineBlocks&& blocks, OffloadRequest&& request);
  [[nodiscard]] const Tier& from() const { return link_.from(); }
  void cancel(OffloadRequestId request);
  void fence(std::uint64_t fences);
  void pause(bool is_paused);
  [[nodiscard]] OffloadStatus status() const;
  bool pump();
  [[nodiscard]] std::optional<TimePoint> next_time() const;
  [[nodiscard]] bool is_idle() const;
  void end();
  void end_now();

 private:
  struct Batch {
    std::vector<BlockKey> keys;
    std::weak_ptr<CopyLoan> loan = {};  // null for the engine's blocks
    std::uint64_t epoch = 0;            // epoch_ when it began
    bool is_in_step = false;            // it saves what the engine's present step computes
  };

  // Which keys of a request the user's filter refuses, or was not asked about because another request has them pending or
  // below. Empty: there is no filter.
  using Unwanted = std::vector<bool>;
  // What the filters have to know of the blocks that the engine saves in one request.
  struct Save {
    std::vector<std::uint32_t> priorities = {};  // of the blocks; empty: no filter looks at them
    std::uint32_t sequence_blocks = 0;
    std::optional<BlockKey> parent = {};
    Unwanted unwanted = {};
  };
  [[nodiscard]] Save save_of(const EngineBlocks& blocks, const OffloadRequest& request) const;
  [[nodiscard]] Result<Unwanted> ask_about_save(const EngineBlocks& blocks, const OffloadRequest& request)
      CAIRN_EXCLUDES(mutex_);
  // Asks the user's filter about what was offered since the last call. Returns whether there was anything.
  bool ask_about_offered() CAIRN_EXCLUDES(mutex_);
  [[nodiscard]] FilteredBlock filtered(const BlockKey& key, std::uint32_t priority, TenantId tenant) const
      CAIRN_REQUIRES(mutex_) {
    return {.key = key,
            .priority = priority,
            .uses = std::max({1U, chooser_.uses(key), registry_.frequency(key)}),
            .tenant = tenant};
  }
  // Whether a request of so many blocks can be taken; counts them if not.
  [[nodiscard]] Status check_open(const EngineBlocks& blocks, std::size_t count) CAIRN_REQUIRES(mutex_);
  // Sets how many blocks may be pending, if the options leave that to the link. A block at `position` is to be queued.
  void bound_queue(std::uint32_t position) CAIRN_REQUIRES(mutex_);
  // Queues the keys that are not below and not rejected. Returns the indices of those for which the queue has no room.
  [[nodiscard]] std::vector<std::uint32_t> enqueue(OffloadRequestId request, std::span<const BlockKey> keys,
                                                   std::uint32_t priority, const Save& save) CAIRN_REQUIRES(mutex_);
  void withdraw(OffloadRequestId request, const std::string& why) CAIRN_REQUIRES(mutex_);
  [[nodiscard]] bool expire_requests(TimePoint now) CAIRN_REQUIRES(mutex_);
  // Passes what the chooser has resolved on to the requests.
  void apply_resolved() CAIRN_REQUIRES(mutex_);
  // The same, and returns the callbacks to be called without the lock.
  [[nodiscard]] std::vector<OffloadRequests::Ended> take_ended() CAIRN_REQUIRES(mutex_);
  static void notify(std::vector<OffloadRequests::Ended>&& ended);

  [[nodiscard]] bool look_into_inbox(TimePoint now) CAIRN_REQUIRES(mutex_);
  // Copies that were lost keep their places in an executor for good. After a full deadline, pending blocks are dropped.
  void give_up_on_a_full_executor(TimePoint now) CAIRN_REQUIRES(mutex_);
  [[nodiscard]] bool begin_batch(TimePoint now) CAIRN_REQUIRES(mutex_);
  [[nodiscard]] std::vector<BlockKey> choose(TimePoint now) CAIRN_REQUIRES(mutex_);
  // The blocks of these keys, in order. Keys that have none are resolved and leave the list.
  [[nodiscard]] std::shared_ptr<CopyLoan> borrow(std::vector<BlockKey>& keys) CAIRN_REQUIRES(mutex_);
  // The blocks of the engine that a requested key names. Only requests name the engine's blocks.
  [[nodiscard]] const EngineBlocks& engine_blocks_of(const BlockKey& key) const CAIRN_REQUIRES(mutex_);
  // Keeps the keys that wait for the same step of the engine as the first one, and are of the same tenant; the others stay
  // pending. A transfer has one
  // mark: with a later one than its own, a block would be read when it may hold something else.
  void keep_one_step(std::vector<BlockKey>& keys) const CAIRN_REQUIRES(mutex_);
  [[nodiscard]] EngineBlocks engine_source(std::span<const BlockKey> keys) const CAIRN_REQUIRES(mutex_);
  [[nodiscard]] Status submit(CopySource source, MutableBlocks targets, Batch batch, TimePoint deadline)
      CAIRN_REQUIRES(mutex_);
  void transferred(const Batch& batch, LinkOutcome&& outcome) CAIRN_EXCLUDES(mutex_);
  void drop_pending(OffloadRefusal reason, std::string_view detail = {}) CAIRN_REQUIRES(mutex_);
  [[nodiscard]] bool is_busy() const CAIRN_REQUIRES(mutex_) {
    return batches_ - in_step_batches_ >= options_.in_flight || is_full_;
  }
  [[nodiscard]] bool may_begin() const CAIRN_REQUIRES(mutex_) {
    return !is_paused_ && !is_ended_ && !link_.is_paused();
  }

  TierLink& link_;
  BlockRegistry& registry_;
  const OffloadOptions options_;
  const Clock& clock_;
  const std::function<void()> wake_;
  BlockPool* const upper_;  // null: the engine's own blocks
  BlockPool& lower_;
  std::optional<FilterCaller> user_filter_;
  OffloadInbox inbox_;
  std::atomic<std::uint32_t> on_loan_{0};  // blocks of upper_ that transfers read

  mutable Mutex mutex_{LockRank::kOffload};
  OffloadChooser chooser_ CAIRN_GUARDED_BY(mutex_);
  OffloadCandidates candidates_ CAIRN_GUARDED_BY(mutex_);
  OffloadRequests requests_ CAIRN_GUARDED_BY(mutex_);
  OffloadInbox::Contents news_ CAIRN_GUARDED_BY(mutex_);  // taken last; kept for its memory
  std::uint32_t batches_ CAIRN_GUARDED_BY(mutex_) = 0;    // in flight
  // Of those, the ones that wait for the layers of the engine's step: they do not keep other batches from the link.
  std::uint32_t in_step_batches_ CAIRN_GUARDED_BY(mutex_) = 0;
  bool is_full_ CAIRN_GUARDED_BY(mutex_) = false;  // the executor is, until a transfer ends or retry_at_
  TimePoint retry_at_ CAIRN_GUARDED_BY(mutex_){};
  std::optional<TimePoint> full_since_ CAIRN_GUARDED_BY(mutex_);  // and has accepted and ended nothing of ours since
  bool is_stuck_ CAIRN_GUARDED_BY(mutex_) = false;  // it was full for too long, and has accepted nothing since
  bool is_paused_ CAIRN_GUARDED_BY(mutex_) = false;
  bool is_ended_ CAIRN_GUARDED_BY(mutex_) = false;
  std::uint32_t longest_sequence_ CAIRN_GUARDED_BY(mutex_) = 1;  // blocks, as far as keys were to be queued
  std::uint64_t fences_ CAIRN_GUARDED_BY(mutex_) = 0;            // over all tiers
  std::uint64_t epoch_ CAIRN_GUARDED_BY(mutex_) = 0;             // grows with every fence
};

Offloader::Impl::Impl(TierLink& link, BlockRegistry& registry, const OffloadOptions& options, const Clock& clock,
                      std::function<void()> wake, AdmissionFilter filter, UserFilter&& user_filter)
    : link_(link),
      registry_(registry),
      options_(options),
      clock_(clock),
      wake_(std::move(wake)),
      upper_(link.from().pool()),
      lower_(*link.to().pool()),
      inbox_(interests_of(options, upper_, user_filter.filter != nullptr)),
      chooser_(options, std::move(filter), options.mode == OffloadMode::kAhead && upper_ != nullptr,
               user_filter.filter != nullptr),
      candidates_(link, registry, options, chooser_) {
  {
    const MutexLock lock(mutex_);
    bound_queue(0);
  }
  if (user_filter.filter) {
    user_filter_.emplace(std::move(user_filter), clock);
  }
}

Offloader::Impl::~Impl() {
  end();
  std::vector<OffloadRequests::Ended> ended;
  {
    const MutexLock lock(mutex_);
    CAIRN_CHECK(batches_ == 0, "the transfers of an offloader end before it is destroyed");
    ended = take_ended();
  }
  notify(std::move(ended));
}

void Offloader::Impl::registered(std::span<const ResidentBlock> blocks) {
  if (inbox_.registered(blocks)) {
    wake_();
  }
}

void Offloader::Impl::used(std::span<const BlockKey> keys) {
  if (inbox_.used(keys)) {
    wake_();
  }
}

void Offloader::Impl::used_by_engine(std::span<const BlockKey> keys) {
  if (options_.counts_uses() || user_filter_) {
    const MutexLock lock(mutex_);
    chooser_.used(keys);
  }
}

Status Offloader::Impl::check_open(const EngineBlocks& blocks, std::size_t count) {
  if (!may_begin()) {
    chooser_.refuse(OffloadRefusal::kTierOut, count);
    return fail(ErrorCode::kFailedPrecondition,
                str_cat("offloading from ", to_string(link_.from().level()), " to ", to_string(link_.to().level()),
                        is_ended_ ? " has ended" : " is paused; resume it"));
  }
  if (blocks.fence && *blocks.fence < fences_) {
    chooser_.refuse(OffloadRefusal::kCancelled, count);
    return fail(ErrorCode::kCancelled, str_cat(count, " blocks were begun before a reset, and are not saved"));
  }
  return {};
}

Offloader::Impl::Save Offloader::Impl::save_of(const EngineBlocks& blocks, const OffloadRequest& request) const {
  Save save{.parent = request.parent};
  if (upper_ != nullptr || (!options_.is_selective() && !user_filter_)) {
    return save;
  }
  std::uint32_t deepest = 0;
  for (const BlockFacts& facts : blocks.facts) {
    save.priorities.push_back(facts.priority);
    deepest = std::max(deepest, facts.block.key.position());
  }
  const auto blocks_of_tokens = static_cast<std::uint32_t>(request.sequence_tokens / lower_.block_size());
  save.sequence_blocks = std::max(deepest + 1, blocks_of_tokens);
  return save;
}

Result<Offloader::Impl::Unwanted> Offloader::Impl::ask_about_save(const EngineBlocks& blocks,
                                                                  const OffloadRequest& request) {
  std::vector<FilteredBlock> run;
  std::vector<std::size_t> indices;
  {
    const MutexLock lock(mutex_);
    CAIRN_TRY(check_open(blocks, request.keys.size()));
    for (std::size_t i = 0; i < request.keys.size(); ++i) {
      if (!chooser_.contains(request.keys[i]) && !candidates_.is_below(request.keys[i])) {
        run.push_back(filtered(request.keys[i], blocks.facts[i].priority, blocks.tenant));
        indices.push_back(i);
      }
    }
  }
  Unwanted unwanted(request.keys.size(), true);
  if (run.empty()) {
    return unwanted;
  }
  const auto keep = std::make_unique<bool[]>(run.size());
  user_filter_->ask({.from = link_.from().level(),
                     .to = link_.to().level(),
                     .request = request.request,
                     .sequence_tokens = request.sequence_tokens,
                     .blocks = run},
                    {keep.get(), run.size()});
  for (std::size_t i = 0; i < run.size(); ++i) {
    unwanted[indices[i]] = !keep[i];
  }
  return unwanted;
}

bool Offloader::Impl::ask_about_offered() {
  std::vector<BlockKey> offered;
  {
    const MutexLock lock(mutex_);
    offered = chooser_.take_unasked();
  }
  if (offered.empty()) {
    return false;
  }
  std::ranges::reverse(offered);  // they were offered last one first
  const auto keep = std::make_unique<bool[]>(options_.batch);
  std::vector<FilteredBlock> run;
  std::vector<std::optional<BlockKey>> parents;  // of the blocks of the run, if they are above
  for (std::span<const BlockKey> left = offered; !left.empty();) {
    const std::span<const BlockKey> keys = left.first(std::min<std::size_t>(left.size(), options_.batch));
    left = left.subspan(keys.size());
    run.clear();
    parents.clear();
    {
      const std::vector<std::optional<PeekedBlock>> seen = upper_->peek(keys);
      const MutexLock lock(mutex_);
      for (std::size_t i = 0; i < keys.size(); ++i) {
        if (seen[i] && chooser_.is_pending(keys[i])) {
          run.push_back(filtered(keys[i], seen[i]->facts.priority, seen[i]->tenant));
          parents.push_back(seen[i]->parent);
        }
      }
    }
    if (run.empty()) {
      continue;  // they are gone
    }
    user_filter_->ask({.from = link_.from().level(), .to = link_.to().level(), .blocks = run},
                      {keep.get(), run.size()});
    const MutexLock lock(mutex_);
    for (std::size_t i = 0; i < run.size(); ++i) {
      const BlockKey& key = run[i].key;
      // Parents are decided on first, in this run or an earlier one. One that is neither below nor on its way there was refused
      // or dropped: the tier below would have a block that nobody can load once the parent leaves the upper tier. Nothing is
      // lost for good: a block that is used again, and in mode kAhead a victim with its ancestors, is offered again.
      const bool has_parent =
          key.position() == 0 || (parents[i] && chooser_.contains(*parents[i])) || lower_.contains_parent_of(key);
      if ((!keep[i] || !has_parent) && chooser_.is_pending(key)) {
        chooser_.reject(key, keep[i] ? OffloadRefusal::kNoParent : OffloadRefusal::kFiltered);
      }
    }
  }
  return true;
}

Result<OffloadRequestId> Offloader::Impl::offload(EngineBlocks&& blocks, OffloadRequest&& request) {
  const std::vector<BlockKey> keys = request.keys;
  const std::uint32_t priority = request.priority;
  Save save = save_of(blocks, request);
  if (upper_ == nullptr && user_filter_) {
    CAIRN_TRY_ASSIGN(save.unwanted, ask_about_save(blocks, request));
  }
  OffloadRequestId id{};
  std::optional<OffloadRequests::Open> refused;  // destroyed without the lock
  std::size_t most_pending = 0;
  {
    const MutexLock lock(mutex_);
    CAIRN_TRY(check_open(blocks, keys.size()));
    id = requests_.add(std::move(request), std::move(blocks));
    bound_queue(last_position(keys, std::identity()));
    const std::vector<std::uint32_t> shed = enqueue(id, keys, priority, save);
    chooser_.refuse(OffloadRefusal::kShed, shed.size());
    if (!keys.empty() && shed.size() == keys.size()) {
      refused = requests_.forget(id);
      most_pending = chooser_.most_pending();
    } else {
      for (const std::uint32_t i : shed) {
        requests_.resolve({id, i}, OffloadRefusal::kShed,
                          str_cat("block ", keys[i].to_string(), ": the queue is full"));
      }
    }
  }
  if (refused) {
    return fail(ErrorCode::kExhausted, str_cat("the queue is full of ", most_pending,
                                               " more valuable blocks; try again when some are copied"));
  }
  wake_();
  return id;
}

void Offloader::Impl::bound_queue(std::uint32_t position) {
  if (options_.queue != 0) {
    return;
  }
  longest_sequence_ = std::max(longest_sequence_, position + 1);
  const double all = link_.from().layout()->blocks();
  const double speed = link_.meter().bytes_per_second();
  const double in_time = speed * std::chrono::duration<double>(options_.deadline).count() /
                         static_cast<double>(link_.from().block_bytes());
  const double most = speed == 0 ? all : std::clamp(in_time, std::min<double>(longest_sequence_, all), all);
  chooser_.set_most_pending(static_cast<std::size_t>(most));
}

std::vector<std::uint32_t> Offloader::Impl::enqueue(OffloadRequestId request, std::span<const BlockKey> keys,
                                                    std::uint32_t priority, const Save& save) {
  const bool is_filtered = !save.priorities.empty();
  const TimePoint now = is_filtered ? clock_.now() : TimePoint();
  // A block before the next one was rejected and is in no tier: nobody could load what comes after it.
  bool is_cut =
      is_filtered && save.parent && !chooser_.contains(*save.parent) && registry_.tiers_of(*save.parent).empty();
  std::vector<std::uint32_t> shed;
  for (std::uint32_t i = 0; i < keys.size(); ++i) {
    const BlockKey& key = keys[i];
    is_cut = is_cut && (i == 0 || keys[i - 1].is_parent_of(key));
    if (candidates_.is_below(key)) {
      chooser_.refuse(OffloadRefusal::kAlreadyBelow);
      requests_.resolve({request, i}, std::nullopt, {});
      continue;
    }
    OffloadChooser::Refusal refusal;
    const bool is_judged = is_filtered && !chooser_.contains(key);
    if (is_judged && is_cut) {
      refusal = OffloadRefusal::kNoParent;
    } else if (is_judged) {
      // The user's filter first: what judge() admits counts as written.
      const bool is_unwanted = !save.unwanted.empty() && save.unwanted[i];
      refusal =
          is_unwanted ? OffloadRefusal::kFiltered : chooser_.judge(key, save.sequence_blocks, save.priorities[i], now);
      is_cut = refusal && registry_.tiers_of(key).empty();
    }
    if (refusal) {
      chooser_.refuse(*refusal);
      requests_.resolve({request, i}, refusal, str_cat("block ", key.to_string(), ": ", to_string(*refusal)));
    } else if (!chooser_.request({request, i}, key, priority, registry_.frequency(key), is_judged)) {
      shed.push_back(i);
    }
  }
  return shed;
}

void Offloader::Impl::cancel(OffloadRequestId request) {
  {
    const MutexLock lock(mutex_);
    withdraw(request, "it was cancelled");
  }
  wake_();
}

// Keys in flight have their outcomes when their transfers end.
void Offloader::Impl::withdraw(OffloadRequestId request, const std::string& why) {
  apply_resolved();
  const OffloadRequests::Open* open = requests_.find(request);
  if (open == nullptr) {
    return;
  }
  const std::vector<BlockKey> keys = open->keys;
  for (std::uint32_t i = 0; i < keys.size(); ++i) {
    if (!chooser_.withdraw(request, keys[i])) {
      requests_.resolve({request, i}, OffloadRefusal::kCancelled, why);
    }
  }
}

bool Offloader::Impl::expire_requests(TimePoint now) {
  const std::vector<OffloadRequestId> due = requests_.due(now);
  for (const OffloadRequestId request : due) {
    withdraw(request, "the deadline passed");
    requests_.close(request, "the deadline passed");
  }
  return !due.empty();
}

void Offloader::Impl::apply_resolved() {
  for (const OffloadChooser::Resolved& resolved : chooser_.take_resolved()) {
    requests_.resolve(resolved.requested, resolved.refusal, resolved.error);
  }
}

std::vector<OffloadRequests::Ended> Offloader::Impl::take_ended() {
  apply_resolved();
  return requests_.take_ended();
}

void Offloader::Impl::notify(std::vector<OffloadRequests::Ended>&& ended) {
  for (OffloadRequests::Ended& request : ended) {
    request.held.reset();
    if (request.done) {
      request.done(std::move(request.outcome));
    }
  }
}

void Offloader::Impl::fence(std::uint64_t fences) {
  constexpr std::string_view kWhy = "the cache was reset";
  {
    const MutexLock lock(mutex_);
    fences_ = fences;
    ++epoch_;
    inbox_.take(news_);
    for (const OffloadRequestId request : requests_.all()) {
      withdraw(request, std::string(kWhy));
    }
    // Transfers in flight end by themselves and have no effect here: their keys may belong to other blocks now.
    chooser_.drop_all(OffloadRefusal::kCancelled, kWhy);
    candidates_.forget();
  }
  wake_();
}

void Offloader::Impl::pause(bool is_paused) {
  {
    const MutexLock lock(mutex_);
    is_paused_ = is_paused;
  }
  wake_();
}

void Offloader::Impl::end() {
  inbox_.close();
  {
    const MutexLock lock(mutex_);
    is_ended_ = true;
    for (const OffloadRequestId request : requests_.all()) {
      withdraw(request, "offloading has ended");
    }
    drop_pending(OffloadRefusal::kCancelled);
  }
  wake_();
}

void Offloader::Impl::end_now() {
  std::vector<OffloadRequests::Ended> ended;
  {
    const MutexLock lock(mutex_);
    for (const OffloadRequestId request : requests_.all()) {
      requests_.close(request, "the manager was stopped before the transfer ended");
    }
    ended = take_ended();
  }
  notify(std::move(ended));
}

OffloadStatus Offloader::Impl::status() const {
  const MutexLock lock(mutex_);
  OffloadStatus status = chooser_.status();
  status.from = link_.from().level();
  status.to = link_.to().level();
  status.mode = options_.mode;
  status.is_paused = is_paused_;
  if (user_filter_) {
    user_filter_->add_to(status);
  }
  return status;
}

std::optional<TimePoint> Offloader::Impl::next_time() const {
  const MutexLock lock(mutex_);
  std::optional<TimePoint> next = requests_.next_deadline();
  if (is_full_ && batches_ == 0 && (!next || retry_at_ < *next)) {
    next = retry_at_;
  }
  return next;
}

bool Offloader::Impl::is_idle() const {
  const MutexLock lock(mutex_);
  const bool searches = !is_paused_ && !is_ended_ && !is_stuck_ && candidates_.may_find_missed();
  return chooser_.empty() && batches_ == 0 && requests_.empty() && !inbox_.has_candidates() && !searches;
}

bool Offloader::Impl::pump() {
  std::vector<OffloadRequests::Ended> ended;
  bool any = false;
  const TimePoint now = clock_.now();
  {
    const MutexLock lock(mutex_);
    any = look_into_inbox(now);
    any = expire_requests(now) || any;
    if (may_begin()) {
      give_up_on_a_full_executor(now);
      any = candidates_.offer_victims(now) || any;
      any = (!is_stuck_ && candidates_.offer_missed(now)) || any;
    }
  }
  if (user_filter_ && upper_ != nullptr) {
    any = ask_about_offered() || any;
  }
  {
    const MutexLock lock(mutex_);
    while (may_begin() && begin_batch(now)) {
      any = true;
    }
    ended = take_ended();
  }
  any = any || !ended.empty();
  notify(std::move(ended));
  return any;
}

bool Offloader::Impl::look_into_inbox(TimePoint now) {
  inbox_.take(news_);
  chooser_.used(news_.uses);
  if (is_ended_ || news_.candidates.empty()) {
    return false;
  }
  if (is_paused_) {
    candidates_.missed_some();
    return false;
  }
  bound_queue(last_position(news_.candidates, &OffloadInbox::Candidate::key));
  return candidates_.offer_registered(news_, now);
}

void Offloader::Impl::drop_pending(OffloadRefusal reason, std::string_view detail) {
  candidates_.missed_some();
  chooser_.drop_pending(reason, detail);
}

void Offloader::Impl::give_up_on_a_full_executor(TimePoint now) {
  is_full_ = is_full_ && (batches_ > 0 || now < retry_at_);
  if (full_since_ && now - *full_since_ >= options_.deadline) {
    drop_pending(OffloadRefusal::kTierOut, "the executor is full and accepts no transfers");
    full_since_.reset();
    is_stuck_ = true;
  }
}

// Returns whether anything was done, so that it is worth calling again.
bool Offloader::Impl::begin_batch(TimePoint now) {
  if (chooser_.pending() == 0 || is_busy()) {
    return false;
  }
  if (!link_.may_be_tried()) {
    drop_pending(OffloadRefusal::kTierOut);
    return true;
  }
  const std::size_t pending = chooser_.pending();
  std::vector<BlockKey> keys = choose(now);
  if (keys.empty()) {
    return chooser_.pending() < pending;  // if not, they wait for transfers in flight, whose ends wake the owner
  }
  if (upper_ == nullptr) {
    keep_one_step(keys);
    if (cairn::is_in_step(engine_blocks_of(keys.front()).not_before) && in_step_batches_ >= kInStepBatches) {
      return false;
    }
  }
  const TenantId tenant = upper_ == nullptr ? engine_blocks_of(keys.front()).tenant : kDefaultTenant;
  std::optional<MutableBlocks> targets = allocate_up_to(lower_, static_cast<std::uint32_t>(keys.size()), tenant);
  if (!targets && batches_ > 0) {
    return false;  // there may be room when those have ended
  }
  if (!targets) {
    for (const BlockKey& key : keys) {
      chooser_.resolve(key, OffloadRefusal::kNoRoom);
    }
    return true;
  }
  keys.resize(targets->size());
  const std::shared_ptr<CopyLoan> loan = upper_ != nullptr ? borrow(keys) : nullptr;
  if (keys.empty()) {
    return true;
  }
  CopySource source = loan == nullptr ? CopySource(engine_source(keys))
                                      : CopySource(std::shared_ptr<const BorrowedBlocks>(loan, &loan->blocks()));
  MutableBlocks fitting = targets->take_front(static_cast<std::uint32_t>(keys.size()));
  targets.reset();
  const bool is_in_step = cairn::is_in_step(source.not_before());
  // Ranks hold an in-step copy back until its step has ended: the request says how long that may take.
  TimePoint deadline = deadline_after(now, options_.deadline);
  if (is_in_step) {
    deadline = std::max(deadline, requests_.find(chooser_.requester(keys.front()).request)->deadline);
  }
  const Status status =
      submit(std::move(source), std::move(fitting), {.keys = keys, .loan = loan, .is_in_step = is_in_step}, deadline);
  if (status && loan != nullptr) {
    loan->begun();
  }
  if (status) {
    return true;
  }
  if (status.error().code == ErrorCode::kExhausted) {
    is_full_ = true;
    full_since_ = full_since_.value_or(now);
    retry_at_ = now + kRetryAfter;
    return false;
  }
  for (const BlockKey& key : keys) {
    chooser_.resolve(
        key, status.error().code == ErrorCode::kUnavailable ? OffloadRefusal::kTierOut : OffloadRefusal::kFailed,
        status.error().message);
  }
  return true;
}

std::vector<BlockKey> Offloader::Impl::choose(TimePoint now) {
  const bool is_ahead = candidates_.is_ahead();
  OffloadChooser::Room room;
  if (is_ahead) {
    room = {.free_below = candidates_.free_below(), .lendable = candidates_.lendable(on_loan_)};
    if (room.lendable.blocks == 0) {
      return {};  // until a transfer has ended
    }
  }
  const std::vector<BlockKey> keys =
      chooser_.next([this](const BlockKey& key) CAIRN_REQUIRES(mutex_) { return candidates_.parent_of(key); });
  const std::vector<std::optional<PeekedBlock>> above =
      upper_ != nullptr ? upper_->peek(keys) : std::vector<std::optional<PeekedBlock>>();
  std::vector<OffloadChooser::Lookup> lookups(keys.size());
  for (std::size_t i = 0; i < keys.size(); ++i) {
    OffloadChooser::Lookup& lookup = lookups[i];
    lookup.is_below = candidates_.is_below(keys[i]);
    if (upper_ != nullptr) {
      lookup.is_above = above[i].has_value();
      lookup.is_in_use = above[i] && above[i]->in_use;
    }
    lookup.is_orphan = is_ahead && !lookup.is_below && lookup.is_above && !chooser_.is_requested(keys[i]) &&
                       candidates_.is_orphan(keys[i]);
  }
  OffloadChooser::Choice choice = chooser_.choose(keys, lookups, room, now);
  if (choice.lacked_room && room.free_below == 0) {
    candidates_.missed_some();
  } else if (choice.lacked_room) {
    candidates_.shed_some();
  }
  return std::move(choice.keys);
}

std::shared_ptr<CopyLoan> Offloader::Impl::borrow(std::vector<BlockKey>& keys) {
  auto loan = std::make_shared<CopyLoan>(upper_->borrow(keys), on_loan_, wake_);
  const std::vector<BlockFacts> facts = loan->blocks().facts();
  std::size_t found = 0;
  std::erase_if(keys, [&](const BlockKey& key) CAIRN_REQUIRES(mutex_) {
    if (found < facts.size() && facts[found].block.key == key) {
      ++found;
      return false;
    }
    // A late transfer may still read it.
    chooser_.resolve(key, upper_->contains(key) ? OffloadRefusal::kInFlight : OffloadRefusal::kGone);
    return true;
  });
  return loan;
}

const EngineBlocks& Offloader::Impl::engine_blocks_of(const BlockKey& key) const {
  return requests_.find(chooser_.requester(key).request)->source;
}

void Offloader::Impl::keep_one_step(std::vector<BlockKey>& keys) const {
  const EngineBlocks& first = engine_blocks_of(keys.front());
  std::erase_if(keys, [&](const BlockKey& key) CAIRN_REQUIRES(mutex_) {
    const EngineBlocks& blocks = engine_blocks_of(key);
    return blocks.not_before != first.not_before || blocks.tenant != first.tenant;
  });
}

EngineBlocks Offloader::Impl::engine_source(std::span<const BlockKey> keys) const {
  EngineBlocks blocks;
  const auto held = std::make_shared<std::vector<std::shared_ptr<void>>>();
  for (const BlockKey& key : keys) {
    const std::uint32_t index = chooser_.requester(key).index;
    const EngineBlocks& source = engine_blocks_of(key);
    blocks.not_before = source.not_before;  // the same for all: see keep_one_step()
    blocks.block_ids.push_back(source.block_ids[index]);
    blocks.facts.push_back(source.facts[index]);
    if (held->empty() || held->back() != source.held) {
      held->push_back(source.held);
    }
  }
  blocks.held = held;
  return blocks;
}

Status Offloader::Impl::submit(CopySource source, MutableBlocks targets, Batch batch, TimePoint deadline) {
  batch.epoch = epoch_;
  const auto shared = std::make_shared<const Batch>(std::move(batch));
  const auto submitted =
      link_.submit({.source = std::move(source),
                    .targets = std::move(targets),
                    .deadline = deadline,
                    .done = [this, shared](LinkOutcome&& outcome) { transferred(*shared, std::move(outcome)); }});
  if (!submitted) {
    return Unexpected(Error(submitted.error().error));
  }
  chooser_.began(shared->keys);
  full_since_.reset();
  is_stuck_ = false;
  ++batches_;
  in_step_batches_ += shared->is_in_step ? 1 : 0;
  return {};
}

void Offloader::Impl::transferred(const Batch& batch, LinkOutcome&& outcome) {
  outcome.blocks = {};  // others may evict them from now on
  std::vector<OffloadRequests::Ended> ended;
  {
    const MutexLock lock(mutex_);
    if (batch.epoch == epoch_) {
      for (std::size_t i = 0; i < batch.keys.size(); ++i) {
        chooser_.resolve(batch.keys[i], refusal_of(outcome.states[i]), outcome.error);
      }
    }
    if (std::ranges::find(outcome.states, BlockState::kDone) != outcome.states.end()) {
      candidates_.copied_some();
    }
    --batches_;
    in_step_batches_ -= batch.is_in_step ? 1 : 0;
    is_full_ = false;
    full_since_.reset();
    ended = take_ended();
  }
  if (std::ranges::find(outcome.states, BlockState::kExpired) != outcome.states.end()) {
    if (const std::shared_ptr<CopyLoan> loan = batch.loan.lock()) {
      loan->uncount();
    }
  }
  notify(std::move(ended));
  wake_();
}

Result<std::unique_ptr<Offloader>> Offloader::make(TierLink& link, BlockRegistry& registry,
                                                   const OffloadOptions& options, const Clock& clock,
                                                   std::function<void()> wake, UserFilter filter) {
  if (options.batch == 0 || options.in_flight == 0) {
    return fail(ErrorCode::kInvalidArgument, str_cat("offloading in ", options.in_flight, " batches of ", options.batch,
                                                     " blocks; each is at least 1"));
  }
  if (link.to().pool() == nullptr) {
    return fail(ErrorCode::kInvalidArgument,
                str_cat(to_string(link.to().level()), " has no pool; blocks move down to a tier that has one"));
  }
  CAIRN_TRY_ASSIGN(AdmissionFilter admission, AdmissionFilter::create({.capacity = link.to().pool()->capacity(),
                                                                       .least_uses = options.least_uses,
                                                                       .least_blocks = options.least_blocks,
                                                                       .least_chance = options.least_chance,
                                                                       .bytes_per_day = options.bytes_per_day,
                                                                       .block_bytes = link.to().block_bytes(),
                                                                       .seed = link.to().pool()->seed()},
                                                                      clock.now()));
  return std::unique_ptr<Offloader>(new Offloader(std::make_unique<Impl>(
      link, registry, options, clock, std::move(wake), std::move(admission), std::move(filter))));
}

Offloader::Offloader(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Offloader::~Offloader() = default;

void Offloader::registered(std::span<const ResidentBlock> blocks) { impl_->registered(blocks); }
void Offloader::used(std::span<const BlockKey> keys) { impl_->used(keys); }
void Offloader::used_by_engine(std::span<const BlockKey> keys) { impl_->used_by_engine(keys); }

Result<OffloadRequestId> Offloader::offload(OffloadRequest&& request) {
  if (impl_->from().pool() == nullptr) {
    return fail(ErrorCode::kInvalidArgument, str_cat("the engine's own ", to_string(impl_->from().level()),
                                                     " has no pool; give the engine's block ids"));
  }
  return impl_->offload({}, std::move(request));
}

Result<OffloadRequestId> Offloader::offload(EngineBlocks&& blocks, OffloadRequest&& request) {
  if (impl_->from().pool() != nullptr) {
    return fail(ErrorCode::kInvalidArgument,
                str_cat(to_string(impl_->from().level()), " has a pool; name its blocks by their keys"));
  }
  std::vector<BlockKey> keys;
  for (const BlockFacts& facts : blocks.facts) {
    keys.push_back(facts.block.key);
  }
  if (blocks.block_ids.size() != keys.size() || (!request.keys.empty() && request.keys != keys)) {
    return fail(ErrorCode::kInvalidArgument,
                str_cat(blocks.block_ids.size(), " blocks and ", keys.size(), " facts for ", request.keys.size(),
                        " keys; give one of each for each block"));
  }
  const std::uint32_t all = impl_->from().layout()->blocks();
  if (std::ranges::any_of(blocks.block_ids, [all](BlockId block_id) { return index_of(block_id) >= all; })) {
    return fail(ErrorCode::kOutOfRange, str_cat("a block id is beyond the ", all, " blocks of the engine's layout"));
  }
  if (std::ranges::any_of(blocks.facts,
                          [](const BlockFacts& facts) { return facts.priority > Retention::kMaxPriority; })) {
    return fail(ErrorCode::kInvalidArgument, str_cat("the highest priority of a block is ", Retention::kMaxPriority));
  }
  request.keys = std::move(keys);
  return impl_->offload(std::move(blocks), std::move(request));
}

void Offloader::cancel(OffloadRequestId request) { impl_->cancel(request); }
void Offloader::fence(std::uint64_t fences) { impl_->fence(fences); }
void Offloader::pause() { impl_->pause(true); }
void Offloader::resume() { impl_->pause(false); }
OffloadStatus Offloader::status() const { return impl_->status(); }
bool Offloader::pump() { return impl_->pump(); }
std::optional<TimePoint> Offloader::next_time() const { return impl_->next_time(); }
bool Offloader::is_idle() const { return impl_->is_idle(); }
void Offloader::end() { impl_->end(); }
void Offloader::end_now() { impl_->end_now(); }

}  // namespace cairn
