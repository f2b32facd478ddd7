#include "cairn/onboard/onboarder.h"

#include <algorithm>
#include <new>
#include <utility>

#include "cairn/base/check.h"
#include "cairn/base/deadline.h"
#include "cairn/base/str_cat.h"
#include "cairn/onboard/onboarder_impl.h"

namespace cairn {

namespace {

// By how much copies end before the load they are of, at most.
constexpr Duration kBeforeTheDeadline = std::chrono::milliseconds(1);

std::shared_ptr<const LoadCostModel> cost_model(const Onboarder::Parts& parts, const OnboardOptions& options) {
  return parts.cost != nullptr ? parts.cost : measured_cost_model(options.prefill_tokens_per_second);
}

Onboarder::Parts with_cost(Onboarder::Parts parts, const OnboardOptions& options) {
  parts.cost = cost_model(parts, options);
  return parts;
}

Status check_tier(const char* name, const Tier* tier, CacheLevel level) {
  if (tier != nullptr && tier->level() != level) {
    return fail(ErrorCode::kInvalidArgument,
                str_cat("the ", name, " is ", to_string(tier->level()), "; it has to be ", to_string(level)));
  }
  if (tier != nullptr && tier->pool() == nullptr && level != CacheLevel::kG1) {
    return fail(ErrorCode::kInvalidArgument, str_cat("the ", name, " has no pool; only a device goes without"));
  }
  return {};
}

Status check_link(const char* name, const TierLink* link, const Tier* from, const Tier* to) {
  if (link != nullptr && (&link->from() != from || &link->to() != to)) {
    return fail(ErrorCode::kInvalidArgument, str_cat("the link ", name, " joins other tiers"));
  }
  return {};
}

// Keys of one chain stand in the order of their positions; any others are sorted to see.
bool has_twice(std::span<const BlockKey> keys) {
  const auto not_before = [](const BlockKey& a, const BlockKey& b) { return a.position() >= b.position(); };
  if (std::adjacent_find(keys.begin(), keys.end(), not_before) == keys.end()) {
    return false;
  }
  std::vector<BlockKey> sorted(keys.begin(), keys.end());
  std::sort(sorted.begin(), sorted.end());
  return std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end();
}

}  // namespace

Onboarder::Impl::Impl(const Parts& parts, const OnboardOptions& options)
    : parts_(with_cost(parts, options)),
      options_(options),
      links_{parts.host_to_device, parts.disk_to_device, parts.disk_to_host} {}

Status Onboarder::Impl::check(std::span<const BlockKey> keys) const {
  if (has_twice(keys)) {
    return fail(ErrorCode::kInvalidArgument, "a key stands in the list twice; name each block once");
  }
  return {};
}

Status Onboarder::Impl::admit() {
  if (is_ended_) {
    return fail(ErrorCode::kUnavailable, "nothing is loaded any more: the end has come");
  }
  if (loads_.size() >= options_.loads) {
    ++totals_.refused;
    return fail(ErrorCode::kExhausted, str_cat(loads_.size(), " loads are under way; try again when one has ended"));
  }
  return {};
}

LoadPtr Onboarder::Impl::make_load(Load::Kind kind, TimePoint deadline) const {
  auto load = std::make_shared<Load>();
  load->ending.emplace_back();
  load->kind = kind;
  load->deadline = deadline;
  const Duration left = time_until(deadline, parts_.clock->now());
  load->copies_by = deadline != TimePoint::max() ? deadline - std::min(kBeforeTheDeadline, left / 8) : deadline;
  return load;
}

void Onboarder::Impl::start(const LoadPtr& load, const LoadRequest* request, std::optional<MutableBlocks> targets,
                            Outbox& outbox) {
  ++load->open;
  try {
    plan_and_begin(load, request, std::move(targets), outbox);
  } catch (const std::bad_alloc&) {
    run_out(*load, outbox);
  }
  serve(outbox);
  settle(load, outbox);
  outbox.wake = outbox.wake || !load->is_over;
}

void Onboarder::Impl::plan_and_begin(const LoadPtr& load, const LoadRequest* request,
                                     std::optional<MutableBlocks> targets, Outbox& outbox) {
  const auto all = static_cast<std::uint32_t>(load->keys.size());
  const std::uint32_t first = load->kind == Load::Kind::kPrefix ? load->base.size() : 0;
  Plan plan{.end = first};
  if (parts_.clock->now() < load->deadline) {
    plan = survey(load, first, all, 0);
    totals_.misses += load->is_prefix() ? all - plan.end : 0;
  } else {
    load->why = "the deadline had passed before it began";
  }
  switch (load->kind) {
    case Load::Kind::kPrefix:
    case Load::Kind::kBlocks:
      load->found.assign(first, CacheLevel::kG1);
      for (const Find& find : plan.finds) {
        load->found.insert(load->found.end(), find.blocks, find.from);
      }
      for (const CacheLevel level : load->found) {
        ++totals_.hits[index_of(level)];
      }
      load->planned = first + worth_loading(*load, plan.finds, *request);
      totals_.not_worth_it += load->not_worth_it;
      trim(plan, load->planned);
      break;
    case Load::Kind::kGiven:
      load->planned = all;
      break;
    case Load::Kind::kPrefetch:
      for (const Find& find : plan.finds) {
        load->planned += find.blocks;
      }
      break;
  }
  load->hopeful = load->planned;
  begin(load, plan, first, std::move(targets), outbox);
}

// The whole list is on the device: nothing to plan, and nothing to keep.
LoadId Onboarder::Impl::tell_at_once(const LoadRequest& request, ImmutableBlocks blocks) {
  LoadId id{};
  LoadResult result;
  result.prefix = blocks.size();
  result.from[index_of(CacheLevel::kG1)] = blocks.size();
  result.blocks = std::move(blocks);
  {
    const MutexLock lock(mutex_);
    id = LoadId{next_id_++};
    ++totals_.finished;
    totals_.hits[index_of(CacheLevel::kG1)] += result.prefix;
  }
  if (request.done) {
    request.done(std::move(result));
  }
  return id;
}

// Takes a load in, lets `fill` give it what is its own, and starts it. What is refused is as it was.
template <typename Fill>
Result<LoadId> Onboarder::Impl::take_in(Load::Kind kind, std::vector<BlockKey>&& keys, TimePoint deadline,
                                        const LoadRequest* request, std::optional<MutableBlocks> targets, Fill fill) {
  if (const Status status = check(keys); !status) {
    return Unexpected(status.error());
  }
  Outbox outbox;
  const LoadPtr load = make_load(kind, deadline);
  {
    const MutexLock lock(mutex_);
    if (const Status status = admit(); !status) {
      return Unexpected(status.error());
    }
    load->id = LoadId{next_id_++};
    load->keys = std::move(keys);
    fill(*load);
    loads_.emplace(load->id, load);
    // From here on it ends as any other, with what there was memory for.
    start(load, request, std::move(targets), outbox);
    close(outbox);
  }
  const LoadId id = load->id;
  tell(outbox);
  return id;
}

Result<LoadId> Onboarder::Impl::load(LoadRequest&& request) {
  if (device_pool() == nullptr) {
    return fail(ErrorCode::kInvalidArgument, "there is no device with a pool to load into");
  }
  const std::uint64_t fences = fences_;
  ImmutableBlocks base = device_pool()->match_prefix(request.keys);
  if (base.size() == request.keys.size()) {
    return tell_at_once(request, std::move(base));
  }
  return take_in(Load::Kind::kPrefix, std::move(request.keys), deadline_of(request), &request, std::nullopt,
                 [&](Load& load) {
                   load.done = std::move(request.done);
                   if (fences_ == fences) {
                     load.base = std::move(base);
                   }
                 });
}

Result<LoadId> Onboarder::Impl::load_into(EngineBlocks&& targets, LoadRequest&& request) {
  if (parts_.device == nullptr || device_pool() != nullptr) {
    return fail(ErrorCode::kInvalidArgument, "there is no device of the engine's own to load into");
  }
  if (targets.block_ids.size() != request.keys.size()) {
    return fail(ErrorCode::kInvalidArgument, str_cat(request.keys.size(), " keys for ", targets.block_ids.size(),
                                                     " blocks; give one block for each key"));
  }
  return take_in(Load::Kind::kBlocks, std::move(request.keys), deadline_of(request), &request, std::nullopt,
                 [&](Load& load) {
                   load.done = std::move(request.done);
                   load.block_ids = std::move(targets);
                   load.is_there.assign(load.keys.size(), false);
                 });
}

Result<LoadId> Onboarder::Impl::onboard(CacheLevel from, ImmutableBlocks blocks, std::optional<MutableBlocks> targets,
                                        TimePoint deadline, Load::GivenDone done) {
  if (device_pool() == nullptr) {
    return fail(ErrorCode::kInvalidArgument, "there is no device with a pool to load into");
  }
  if ((from != CacheLevel::kG2 || parts_.host == nullptr) && (from != CacheLevel::kG3 || parts_.disk == nullptr)) {
    return fail(ErrorCode::kInvalidArgument, str_cat("there is no tier ", to_string(from), " below the device"));
  }
  if (targets && targets->size() != blocks.size()) {
    return fail(ErrorCode::kInvalidArgument,
                str_cat(blocks.size(), " blocks for ", targets->size(), " targets; give one for each"));
  }
  std::vector<BlockKey> keys;
  keys.reserve(blocks.size());
  for (const BlockFacts& facts : blocks.facts()) {
    keys.push_back(facts.block.key);
  }
  const bool has_targets = targets.has_value();
  return take_in(Load::Kind::kGiven, std::move(keys), deadline, nullptr, std::move(targets), [&](Load& load) {
    load.done = std::move(done);
    load.base = std::move(blocks);
    load.has_targets = has_targets;
  });
}

Result<LoadId> Onboarder::Impl::prefetch(std::vector<BlockKey> keys, TimePoint deadline, Load::PrefetchDone done) {
  return take_in(Load::Kind::kPrefetch, std::move(keys), deadline, nullptr, std::nullopt, [&](Load& load) {
    load.is_there.assign(load.keys.size(), false);
    load.done = std::move(done);
  });
}

void Onboarder::Impl::cancel(LoadId id) {
  Outbox outbox;
  {
    const MutexLock lock(mutex_);
    const auto found = loads_.find(id);
    if (found == loads_.end()) {
      return;
    }
    const LoadPtr load = found->second;
    cancel(load, "it was cancelled", outbox);
    serve(outbox);
    close(outbox);
  }
  tell(outbox);
}

Onboarder::Fenced Onboarder::Impl::fence() {
  const auto outbox = std::make_shared<Outbox>();
  Fenced fenced{.tell = [self = shared_from_this(), outbox] { self->tell(*outbox); }};
  const MutexLock lock(mutex_);
  ++fences_;
  for (const auto& [id, load] : loads_) {
    load->is_fenced = true;
    ++fenced.loads;
  }
  cancel_all("the cache was reset while the load was in flight", *outbox);
  serve(*outbox);
  close(*outbox);
  return fenced;
}

OnboardStatus Onboarder::Impl::status() const {
  const MutexLock lock(mutex_);
  OnboardStatus status = totals_;
  status.loads = static_cast<std::uint32_t>(loads_.size());
  return status;
}

bool Onboarder::Impl::pump() {
  Outbox outbox;
  bool any = false;
  {
    const MutexLock lock(mutex_);
    const TimePoint now = parts_.clock->now();
    for (auto next = loads_.begin(); next != loads_.end();) {
      const LoadPtr load = (next++)->second;  // it may go
      if (load->deadline <= now) {
        load->note("the deadline passed");
        finish(load, outbox);
        any = true;
      } else if (load->copies_by <= now && !load->is_called_in) {
        call_in(*load);
        any = true;
      }
    }
    any = serve(outbox) || any;
    outbox.wake = false;  // whoever pumps asks for the next time
    close(outbox);
  }
  tell(outbox);
  return any;
}

std::optional<TimePoint> Onboarder::Impl::next_time() const {
  const MutexLock lock(mutex_);
  TimePoint next = TimePoint::max();
  for (const auto& [id, load] : loads_) {
    next = std::min(next, load->is_called_in ? load->deadline : load->copies_by);
  }
  const bool is_queued =
      std::any_of(queues_.begin(), queues_.end(), [](const auto& queued) { return !queued.empty(); });
  if (is_queued) {
    next = std::min(next, try_again_);
  }
  return next != TimePoint::max() ? std::optional(next) : std::nullopt;
}

bool Onboarder::Impl::is_idle() const {
  const MutexLock lock(mutex_);
  return loads_.empty() && flying_ == 0 && telling_ == 0;
}

void Onboarder::Impl::end() {
  Outbox outbox;
  {
    const MutexLock lock(mutex_);
    is_ended_ = true;
    cancel_all("nothing is loaded any more: the end has come", outbox);
    serve(outbox);
    close(outbox);
  }
  tell(outbox);
}

void Onboarder::Impl::end_now() {
  Outbox outbox;
  {
    const MutexLock lock(mutex_);
    while (!loads_.empty()) {
      const LoadPtr load = loads_.begin()->second;
      finish(load, outbox);
    }
    close(outbox);
  }
  tell(outbox);
}

Onboarder::Onboarder(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

Onboarder::~Onboarder() { CAIRN_CHECK(impl_->is_idle(), "an onboarder is ended and pumped until it is idle"); }

Result<std::unique_ptr<Onboarder>> Onboarder::make(const Parts& parts, const OnboardOptions& options) {
  CAIRN_CHECK(parts.clock != nullptr && parts.registry != nullptr, "an onboarder has a clock and a registry");
  for (const Status& status :
       {check_tier("device", parts.device, CacheLevel::kG1), check_tier("host", parts.host, CacheLevel::kG2),
        check_tier("disk", parts.disk, CacheLevel::kG3),
        check_link("host to device", parts.host_to_device, parts.host, parts.device),
        check_link("disk to device", parts.disk_to_device, parts.disk, parts.device),
        check_link("disk to host", parts.disk_to_host, parts.disk, parts.host)}) {
    if (!status) {
      return Unexpected(status.error());
    }
  }
  if (options.loads == 0) {
    return fail(ErrorCode::kInvalidArgument, "loads is 0; at least one has to be possible");
  }
  return std::unique_ptr<Onboarder>(new Onboarder(std::make_shared<Impl>(parts, options)));
}

PrefixLocation Onboarder::locate(std::span<const BlockKey> keys) const { return impl_->locate(keys); }

std::uint32_t Onboarder::worth_loading(const PrefixLocation& found, std::uint32_t first_block) const {
  return impl_->worth_loading(found, first_block);
}
Result<LoadId> Onboarder::load(LoadRequest&& request) { return impl_->load(std::move(request)); }
Result<LoadId> Onboarder::load_into(EngineBlocks&& targets, LoadRequest&& request) {
  return impl_->load_into(std::move(targets), std::move(request));
}
Result<LoadId> Onboarder::onboard(CacheLevel from, ImmutableBlocks blocks, std::optional<MutableBlocks> targets,
                                  TimePoint deadline, std::function<void(Result<ImmutableBlocks>&&)> done) {
  return impl_->onboard(from, std::move(blocks), std::move(targets), deadline, std::move(done));
}
Result<LoadId> Onboarder::prefetch(std::vector<BlockKey> keys, TimePoint deadline,
                                   std::function<void(std::uint32_t)> done) {
  return impl_->prefetch(std::move(keys), deadline, std::move(done));
}
void Onboarder::cancel(LoadId load) { impl_->cancel(load); }
Onboarder::Fenced Onboarder::fence() { return impl_->fence(); }
OnboardStatus Onboarder::status() const { return impl_->status(); }
bool Onboarder::pump() { return impl_->pump(); }
std::optional<TimePoint> Onboarder::next_time() const { return impl_->next_time(); }
bool Onboarder::is_idle() const { return impl_->is_idle(); }
void Onboarder::end() { impl_->end(); }
void Onboarder::end_now() { impl_->end_now(); }

}  // namespace cairn
