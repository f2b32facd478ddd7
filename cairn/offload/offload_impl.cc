#include "cairn/offload/offload_impl.h"

#include <algorithm>
#include <utility>

#include "cairn/base/check.h"
#include "cairn/base/str_cat.h"

namespace cairn {

namespace {

OffloadInbox::Interests interests_of(const OffloadOptions& options, bool has_upper_pool) {
  const bool by_itself = options.mode != OffloadMode::kOff && has_upper_pool;
  const bool learns = options.least_uses > 1 || options.least_chance > 0 || options.bytes_per_day > 0;
  return {.candidates = by_itself,
          .uses = learns && options.mode != OffloadMode::kOff,
          // What was refused when it was new may be worth it when it is used again.
          .used_again = by_itself && options.least_uses > 1,
          .bound = options.queue};
}

}  // namespace

OffloadEdge::Impl::Impl(TierLink& link, BlockRegistry& registry, const OffloadOptions& options, const Clock& clock,
                        std::function<void()> wake, AdmissionFilter filter)
    : link_(link),
      registry_(registry),
      options_(options),
      clock_(clock),
      wake_(std::move(wake)),
      upper_(link.from().pool()),
      lower_(*link.to().pool()),
      inbox_(interests_of(options, upper_ != nullptr)),
      filter_(std::move(filter)),
      queue_(options.queue) {}

OffloadEdge::Impl::~Impl() {
  end();
  Answers answers;
  {
    const MutexLock lock(mutex_);
    CAIRN_CHECK(batches_ == 0, "the copies of an edge are over before it is destroyed");
    answers = requests_.take_answers();
  }
  deliver(std::move(answers));
}

void OffloadEdge::Impl::registered(std::span<const ResidentBlock> blocks) {
  if (inbox_.registered(blocks)) {
    wake_();
  }
}

void OffloadEdge::Impl::used(std::span<const BlockKey> keys) {
  if (inbox_.used(keys)) {
    wake_();
  }
}

Result<OffloadRequestId> OffloadEdge::Impl::offload(EngineBlocks&& blocks, Request&& request) {
  const std::vector<BlockKey> keys = request.keys;
  const std::uint32_t priority = request.priority;
  OffloadRequestId id{};
  std::optional<OffloadRequests::Open> turned_away;  // ends without the lock
  {
    const MutexLock lock(mutex_);
    if (is_paused_ || is_ended_ || link_.is_paused()) {
      turn_away(keys.size(), OffloadRefusal::kTierOut);
      return fail(ErrorCode::kFailedPrecondition,
                  str_cat("the edge from ", to_string(link_.from().level()), " to ", to_string(link_.to().level()),
                          is_ended_ ? " has ended" : " is paused; resume it"));
    }
    if (blocks.fence && *blocks.fence < fences_) {
      turn_away(keys.size(), OffloadRefusal::kCancelled);
      return fail(ErrorCode::kCancelled, str_cat(keys.size(), " blocks were begun before a reset, and are not saved"));
    }
    id = requests_.add(std::move(request), std::move(blocks));
    std::vector<std::uint32_t> shed;
    for (std::uint32_t i = 0; i < keys.size(); ++i) {
      if (!enlist({id, i}, keys[i], priority)) {
        shed.push_back(i);
      }
    }
    if (!keys.empty() && shed.size() == keys.size()) {
      turned_away = requests_.forget(id);
      turn_away(keys.size(), OffloadRefusal::kShed);
    } else {
      offered_ += shed.size();
      for (const std::uint32_t i : shed) {
        refuse(OffloadRefusal::kShed);
        requests_.answer({id, i}, false, str_cat("block ", keys[i].to_string(), ": the queue is full"));
      }
    }
  }
  if (turned_away) {
    return fail(ErrorCode::kExhausted, str_cat("the queue is full of ", options_.queue,
                                               " more valuable blocks; try again when some are copied"));
  }
  wake_();
  return id;
}

// False: there is no room for it in the queue, and nothing has changed.
bool OffloadEdge::Impl::enlist(Asker asker, const BlockKey& key, std::uint32_t priority) {
  if (is_below(key)) {
    ++offered_;
    refuse(OffloadRefusal::kAlreadyBelow);
    requests_.answer(asker, true, {});
    return true;
  }
  if (const auto found = keys_.find(key); found != keys_.end()) {
    ++offered_;
    refuse(OffloadRefusal::kUnderWay);
    found->second.askers.push_back(asker);
    if (found->second.phase == Phase::kWaiting) {
      queue_.raise(key, priority);
    }
    return true;
  }
  const std::optional<BlockKey> shed =
      queue_.push({.key = key, .priority = priority, .frequency = registry_.frequency(key)});
  if (shed == key) {
    return false;
  }
  ++offered_;
  keys_.emplace(key, KeyState{.askers = {asker}});
  if (shed) {
    resolve(*shed, OffloadRefusal::kShed);
  }
  return true;
}

void OffloadEdge::Impl::cancel(OffloadRequestId request) {
  {
    const MutexLock lock(mutex_);
    take_back(request, "it was cancelled");
  }
  wake_();
}

// What is under way goes on, and answers by itself.
void OffloadEdge::Impl::take_back(OffloadRequestId request, const std::string& why) {
  const OffloadRequests::Open* open = requests_.find(request);
  if (open == nullptr) {
    return;
  }
  const std::vector<BlockKey> keys = open->keys;
  for (std::uint32_t i = 0; i < keys.size(); ++i) {
    const auto found = keys_.find(keys[i]);
    if (found != keys_.end()) {
      KeyState& state = found->second;
      if (state.phase == Phase::kUnderWay) {
        continue;
      }
      std::erase_if(state.askers, [request](const Asker& asker) { return asker.request == request; });
      if (state.phase == Phase::kWaiting && state.askers.empty() && !state.is_wanted) {
        resolve(keys[i], OffloadRefusal::kCancelled);
      }
    }
    requests_.answer({request, i}, false, why);
  }
}

bool OffloadEdge::Impl::expire(TimePoint now) {
  const std::vector<OffloadRequestId> due = requests_.due(now);
  for (const OffloadRequestId request : due) {
    take_back(request, "the deadline passed");
    requests_.close(request, "the deadline passed");
  }
  return !due.empty();
}

void OffloadEdge::Impl::deliver(Answers&& answers) {
  for (OffloadRequests::Answer& answer : answers) {
    answer.held.reset();
    if (answer.done) {
      answer.done(std::move(answer.outcome));
    }
  }
}

void OffloadEdge::Impl::fence(std::uint64_t fences) {
  constexpr std::string_view kWhy = "the cache was reset";
  {
    const MutexLock lock(mutex_);
    fences_ = fences;
    ++epoch_;
    inbox_.take(news_);
    for (const OffloadRequestId request : requests_.all()) {
      take_back(request, std::string(kWhy));
    }
    drop_waiting(OffloadRefusal::kCancelled, kWhy);
    // What is in flight ends by itself and changes nothing any more: its keys may be those of other blocks.
    std::vector<BlockKey> in_flight;
    for (const auto& [key, state] : keys_) {
      in_flight.push_back(key);
    }
    for (const BlockKey& key : in_flight) {
      resolve(key, OffloadRefusal::kCancelled, kWhy);
    }
    under_way_ = 0;
    missed_some_ = is_searching_ = shed_some_ = false;
  }
  wake_();
}

void OffloadEdge::Impl::pause() {
  {
    const MutexLock lock(mutex_);
    is_paused_ = true;
  }
  wake_();
}

void OffloadEdge::Impl::resume() {
  {
    const MutexLock lock(mutex_);
    is_paused_ = false;
  }
  wake_();
}

void OffloadEdge::Impl::end() {
  inbox_.close();
  {
    const MutexLock lock(mutex_);
    is_ended_ = true;
    for (const OffloadRequestId request : requests_.all()) {
      take_back(request, "the edge has ended");
    }
    drop_waiting(OffloadRefusal::kCancelled);
  }
  wake_();
}

void OffloadEdge::Impl::end_now() {
  Answers answers;
  {
    const MutexLock lock(mutex_);
    for (const OffloadRequestId request : requests_.all()) {
      requests_.close(request, "the manager was stopped before the copy came back");
    }
    answers = requests_.take_answers();
  }
  deliver(std::move(answers));
}

OffloadStatus OffloadEdge::Impl::status() const {
  const MutexLock lock(mutex_);
  return {.mode = options_.mode,
          .is_paused = is_paused_,
          .offered = offered_,
          .copied = copied_,
          .refused = refused_,
          .waiting = static_cast<std::uint32_t>(queue_.size()),
          .under_way = under_way_};
}

std::optional<TimePoint> OffloadEdge::Impl::next_time() const {
  const MutexLock lock(mutex_);
  std::optional<TimePoint> next = requests_.next_deadline();
  if (is_full_ && batches_ == 0 && (!next || retry_at_ < *next)) {
    next = retry_at_;
  }
  return next;
}

bool OffloadEdge::Impl::is_idle() const {
  const MutexLock lock(mutex_);
  return keys_.empty() && batches_ == 0 && requests_.empty() && !inbox_.has_candidates() && !may_find_missed();
}

bool OffloadEdge::Impl::pump() {
  Answers answers;
  bool did = false;
  {
    const MutexLock lock(mutex_);
    const TimePoint now = clock_.now();
    did = look_into_inbox(now);
    did = expire(now) || did;
    if (!is_paused_ && !is_ended_ && !link_.is_paused()) {
      give_up_on_a_full_executor(now);
      did = claim_victims(now) || did;
      did = find_missed(now) || did;
      while (begin_waiting(now)) {
        did = true;
      }
    }
    answers = requests_.take_answers();
  }
  did = did || !answers.empty();
  deliver(std::move(answers));
  return did;
}

// The key has no copy under way any more, nor waits for one: whoever asked for it is told.
void OffloadEdge::Impl::resolve(const BlockKey& key, Reason reason, std::string_view detail) {
  const auto found = keys_.find(key);
  CAIRN_CHECK(found != keys_.end(), "only a key that is known has an outcome");
  const std::vector<Asker> askers = std::move(found->second.askers);
  urgent_ -= found->second.is_urgent ? 1 : 0;
  queue_.erase(key);
  keys_.erase(found);
  if (reason) {
    refuse(*reason);
  } else {
    ++copied_;
  }
  const bool is_there = !reason || *reason == OffloadRefusal::kAlreadyBelow;
  for (const Asker& asker : askers) {
    requests_.answer(
        asker, is_there,
        is_there ? std::string()
                 : str_cat("block ", key.to_string(), ": ", to_string(*reason), detail.empty() ? "" : "; ", detail));
  }
}

void OffloadEdge::Impl::drop_waiting(OffloadRefusal reason, std::string_view detail) {
  missed_some_ = true;
  for (const BlockKey& key : queue_.first(queue_.size())) {
    resolve(key, reason, detail);
  }
}

// Copies that were lost have their places for good: what waits longer than a copy may take waits for nothing.
void OffloadEdge::Impl::give_up_on_a_full_executor(TimePoint now) {
  is_full_ = is_full_ && (batches_ > 0 || now < retry_at_);
  if (full_since_ && now - *full_since_ >= options_.deadline) {
    constexpr std::string_view kWhy = "the executor is full and takes no copies";
    drop_waiting(OffloadRefusal::kTierOut, kWhy);
    full_since_.reset();
    is_stuck_ = true;
  }
}

bool OffloadEdge::Impl::is_below(const BlockKey& key) const {
  return registry_.tiers_of(key).contains(link_.to().level()) && lower_.contains(key);
}

}  // namespace cairn
