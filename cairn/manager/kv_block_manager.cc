#include "cairn/manager/kv_block_manager.h"

#include <utility>

#include "cairn/base/deadline.h"
#include "cairn/base/str_cat.h"
#include "cairn/manager/manager_state.h"

namespace cairn {

namespace {

Error no_tier(CacheLevel level, const char* key) {
  return {ErrorCode::kNotFound, str_cat("there is no ", to_string(level), " tier; configure ", key)};
}

const char* key_of(CacheLevel level) {
  constexpr const char* kKeys[kCacheLevels] = {"[device]", "[host]", "[disk]", "a remote tier"};
  return kKeys[index_of(level)];
}

// A future that holds its value already.
template <typename T>
std::future<T> ready(T value) {
  std::promise<T> promise;
  promise.set_value(std::move(value));
  return promise.get_future();
}

}  // namespace

Result<KvBlockManager> KvBlockManager::make(const ManagerConfig& config, const ManagerParts& parts) {
  Result<std::shared_ptr<ManagerState>> state = ManagerState::make(config, parts);
  if (!state) {
    return Unexpected(std::move(state).error());
  }
  return KvBlockManager(*std::move(state));
}

BlockPool* KvBlockManager::pool(CacheLevel level) const {
  Tier* const tier = state_->tier(level);
  return tier != nullptr ? tier->pool() : nullptr;
}

BlockLayoutPtr KvBlockManager::layout(CacheLevel level) const {
  const Tier* const tier = state_->tier(level);
  return tier != nullptr ? tier->layout() : nullptr;
}

std::uint64_t KvBlockManager::worker_id() const { return state_->config().worker_id; }
std::uint32_t KvBlockManager::block_size() const { return state_->config().block_size; }
const ManagerConfig& KvBlockManager::config() const { return state_->config(); }
const KeyHasher& KvBlockManager::hasher() const { return state_->hasher(); }

PrefixLocation KvBlockManager::locate(std::span<const BlockKey> keys) const { return state_->onboarder().locate(keys); }

std::uint32_t KvBlockManager::worth_loading(const PrefixLocation& found, std::uint32_t first_block) const {
  return state_->onboarder().worth_loading(found, first_block);
}

namespace {

// The same request, whose time is measured.
LoadRequest measured(ManagerState& state, LoadRequest&& request) {
  const Clock& clock = *state.parts().clock;
  request.done = [&clock, &seconds = state.load_seconds(), began = clock.now(),
                  done = std::move(request.done)](LoadResult&& result) {
    seconds.record(clock.now() - began);
    if (done) {
      done(std::move(result));
    }
  };
  return std::move(request);
}

}  // namespace

Result<LoadId> KvBlockManager::load(LoadRequest&& request) const {
  const std::shared_ptr<ManagerState> state = kept();
  return state->onboarder().load(measured(*state, std::move(request)));
}

Result<LoadId> KvBlockManager::load_into(EngineBlocks&& targets, LoadRequest&& request) const {
  const std::shared_ptr<ManagerState> state = kept();
  return state->onboarder().load_into(std::move(targets), measured(*state, std::move(request)));
}

void KvBlockManager::cancel(LoadId load) const { kept()->onboarder().cancel(load); }

Result<LoadResult> KvBlockManager::load_and_wait(LoadRequest&& request) const {
  const auto result = std::make_shared<std::promise<LoadResult>>();
  std::future<LoadResult> future = result->get_future();
  request.done = [result](LoadResult&& loaded) { result->set_value(std::move(loaded)); };
  const std::shared_ptr<ManagerState> state = kept();
  if (Result<LoadId> id = load(std::move(request)); !id) {
    return Unexpected(std::move(id).error());
  }
  while (!state->parts().own_thread && future.wait_for(std::chrono::seconds(0)) != std::future_status::ready) {
    if (!state->pump()) {
      return fail(ErrorCode::kUnavailable, "the load is under way and nothing more can be done before the clock moves");
    }
  }
  return future.get();
}

std::future<Result<ImmutableBlocks>> KvBlockManager::onboard_blocks(ImmutableBlocks blocks,
                                                                    std::optional<MutableBlocks> targets) const {
  const std::optional<CacheLevel> from = blocks.tier();
  if (!from) {
    return ready<Result<ImmutableBlocks>>(ImmutableBlocks());
  }
  const auto result = std::make_shared<std::promise<Result<ImmutableBlocks>>>();
  std::future<Result<ImmutableBlocks>> future = result->get_future();
  const TimePoint deadline = deadline_after(state_->parts().clock->now(), config().onboard.deadline);
  Result<LoadId> id =
      state_->onboarder().onboard(*from, std::move(blocks), std::move(targets), deadline,
                                  [result](Result<ImmutableBlocks>&& loaded) { result->set_value(std::move(loaded)); });
  if (!id) {
    return ready<Result<ImmutableBlocks>>(Unexpected(std::move(id).error()));
  }
  return future;
}

std::future<Result<std::uint32_t>> KvBlockManager::prefetch(std::vector<BlockKey> keys) const {
  const auto result = std::make_shared<std::promise<Result<std::uint32_t>>>();
  std::future<Result<std::uint32_t>> future = result->get_future();
  const TimePoint deadline = deadline_after(state_->parts().clock->now(), config().onboard.deadline);
  Result<LoadId> id = state_->onboarder().prefetch(std::move(keys), deadline,
                                                   [result](std::uint32_t arrived) { result->set_value(arrived); });
  if (!id) {
    return ready<Result<std::uint32_t>>(Unexpected(std::move(id).error()));
  }
  return future;
}

Result<OffloadRequestId> KvBlockManager::offload(CacheLevel into, OffloadEdge::Request&& request) const {
  const std::shared_ptr<ManagerState> state = kept();
  OffloadEdge* const edge = state->edge_into(into);
  if (edge == nullptr) {
    return Unexpected(no_tier(into, key_of(into)));
  }
  return edge->offload(std::move(request));
}

Result<OffloadRequestId> KvBlockManager::offload(CacheLevel into, EngineBlocks&& blocks,
                                                 OffloadEdge::Request&& request) const {
  const std::shared_ptr<ManagerState> state = kept();
  OffloadEdge* const edge = state->edge_into(into);
  if (edge == nullptr) {
    return Unexpected(no_tier(into, key_of(into)));
  }
  return edge->offload(std::move(blocks), std::move(request));
}

void KvBlockManager::cancel(CacheLevel into, OffloadRequestId request) const {
  const std::shared_ptr<ManagerState> state = kept();
  if (OffloadEdge* const edge = state->edge_into(into)) {
    edge->cancel(request);
  }
}

Result<ResetReport> KvBlockManager::reset(CacheLevel level) const { return state_->reset(level); }
Result<ResetReport> KvBlockManager::reset_all() const { return state_->reset_all(std::nullopt); }
Result<ResetReport> KvBlockManager::invalidate(std::uint64_t weights_generation) const {
  return state_->reset_all(weights_generation);
}
std::uint64_t KvBlockManager::weights_generation() const { return state_->weights_generation(); }
std::uint64_t KvBlockManager::fences() const { return state_->fences(); }

ResetOutcome KvBlockManager::reset(CacheLevel level, std::span<const BlockKey> keys) const {
  Tier* const tier = state_->tier(level);
  if (tier == nullptr || tier->pool() == nullptr) {
    return {.not_found = static_cast<std::uint32_t>(keys.size())};
  }
  return tier->reset(keys);
}

ResetReceiver KvBlockManager::resets() const { return state_->resets().subscribe(); }

Status KvBlockManager::pause(CacheLevel from, CacheLevel to) const { return state_->pause(from, to, true); }
Status KvBlockManager::resume(CacheLevel from, CacheLevel to) const { return state_->pause(from, to, false); }
Status KvBlockManager::resize_host(std::uint32_t blocks) const { return state_->resize_host(blocks); }
ManagerStatus KvBlockManager::status() const { return state_->status(); }
EventLog* KvBlockManager::events() const { return state_->events(); }
const Metrics& KvBlockManager::metrics() const { return state_->metrics(); }
Status KvBlockManager::drain(Duration longest) const { return kept()->drain(longest); }
bool KvBlockManager::pump() const { return kept()->pump(); }
std::optional<TimePoint> KvBlockManager::next_time() const { return state_->next_time(); }

}  // namespace cairn
