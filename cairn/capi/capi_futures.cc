#include <algorithm>
#include <new>
#include <utility>

#include "cairn/base/deadline.h"
#include "cairn/base/str_cat.h"
#include "cairn/capi/c_boundary.h"
#include "cairn/capi/c_handles.h"

using namespace cairn;        // NOLINT(google-build-using-namespace): the C functions are outside of the namespace
using namespace cairn::capi;  // NOLINT(google-build-using-namespace)

namespace {

std::optional<TimePoint> deadline_of(std::uint64_t milliseconds) {
  return milliseconds == 0 ? std::optional<TimePoint>()
                           : deadline_after(steady_clock().now(), limited_ms(milliseconds));
}

// Makes the future first, so that nothing can fail once the copy has started. `start` gets the manager and the state that
// its callback fills, and returns the id of the request. `cancel` gets the manager and that id.
template <typename Start, typename Cancel>
int32_t start_future(const cairn_manager* manager, cairn_future** future, cairn_error* error, Start&& start,
                     Cancel&& cancel) noexcept {
  return guarded(error, [&]() -> Status {
    if (future == nullptr) {
      return fail(ErrorCode::kInvalidArgument, "future is NULL; pass the address of a cairn_future*");
    }
    auto made = std::make_unique<cairn_future>(
        cairn_future{&manager->manager, manager->lifetime, std::make_shared<FutureState>(), {}});
    using Id = std::remove_cvref_t<decltype(*start(manager->manager, made->state))>;
    auto id = std::make_shared<Id>();
    made->cancel = [id, cancel](const KvBlockManager& of) { cancel(of, *id); };
    CAIRN_TRY_ASSIGN(*id, start(manager->manager, made->state));
    *future = made.release();
    return {};
  });
}

constexpr auto kCancelLoad = [](const KvBlockManager& manager, LoadId id) { manager.cancel(id); };

// Polls: whether the outcome is there.
bool has_ended(const cairn_future* future) {
  if (!future->state->ended.try_acquire()) {
    return false;
  }
  future->state->ended.release();
  return true;
}

}  // namespace

int32_t cairn_manager_start_load(cairn_manager* manager, const cairn_load_options* options, cairn_future** future,
                                 cairn_error* error) {
  return start_future(
      manager, future, error,
      [options](const KvBlockManager& on, const std::shared_ptr<FutureState>& state) -> Result<LoadId> {
        CAIRN_TRY_ASSIGN(const cairn_load_options given, read_struct(options, "options"));
        LoadRequest request;
        CAIRN_TRY_ASSIGN(request.keys, read_keys(given.keys, given.key_count));
        request.deadline = deadline_of(given.deadline_ms);
        request.most = given.max_blocks;
        request.weigh = given.load_all == 0;
        request.done = [state](LoadOutcome&& loaded) {
          state->blocks = loaded.prefix;
          state->from = loaded.from;
          state->not_worth_it = loaded.not_worth_it;
          state->held = std::move(loaded.blocks);
          state->ended.release();
        };
        return on.load(std::move(request));
      },
      kCancelLoad);
}

int32_t cairn_manager_start_prefetch(cairn_manager* manager, const cairn_key* keys, size_t count, cairn_future** future,
                                     cairn_error* error) {
  return start_future(
      manager, future, error,
      [keys, count](const KvBlockManager& on, const std::shared_ptr<FutureState>& state) -> Result<LoadId> {
        PrefetchRequest request;
        CAIRN_TRY_ASSIGN(request.keys, read_keys(keys, count));
        request.done = [state](std::uint32_t blocks) {
          state->blocks = blocks;
          state->ended.release();
        };
        return on.prefetch(std::move(request));
      },
      kCancelLoad);
}

int32_t cairn_manager_start_onboard(cairn_manager* manager, const cairn_blocks* blocks, cairn_blocks* targets,
                                    cairn_future** future, cairn_error* error) {
  return start_future(
      manager, future, error,
      [blocks, targets](const KvBlockManager& on, const std::shared_ptr<FutureState>& state) -> Result<LoadId> {
        const auto* const from = blocks == nullptr ? nullptr : std::get_if<ImmutableBlocks>(&blocks->blocks);
        auto* const into = targets == nullptr ? nullptr : std::get_if<MutableBlocks>(&targets->blocks);
        if (from == nullptr) {
          return fail(ErrorCode::kFailedPrecondition, "the blocks are not registered; register them first");
        }
        if (targets != nullptr && into == nullptr) {
          return fail(ErrorCode::kFailedPrecondition, "the targets are registered; allocate others to copy into");
        }
        OnboardRequest request{.blocks = from->share()};
        request.done = [state](Result<ImmutableBlocks>&& brought) {
          if (brought) {
            state->blocks = static_cast<std::uint32_t>(brought->size());
            state->held = *std::move(brought);
          } else {
            state->error = std::move(brought).error();
          }
          state->ended.release();
        };
        if (into != nullptr) {
          request.targets.emplace(std::move(*into));
        }
        const auto give_back = [targets, &request] {  // the caller still has them
          if (request.targets) {
            targets->blocks.emplace<MutableBlocks>(*std::move(request.targets));
          }
        };
        Result<LoadId> started = LoadId{};
        try {
          started = on.onboard_blocks(std::move(request));
        } catch (const std::bad_alloc&) {
          give_back();
          throw;
        }
        if (!started) {
          give_back();
        }
        return started;
      },
      kCancelLoad);
}

int32_t cairn_manager_start_offload(cairn_manager* manager, uint32_t into, const cairn_offload_options* options,
                                    cairn_future** future, cairn_error* error) {
  return start_future(
      manager, future, error,
      [into, options](const KvBlockManager& on,
                      const std::shared_ptr<FutureState>& state) -> Result<std::pair<CacheLevel, OffloadRequestId>> {
        CAIRN_TRY_ASSIGN(const CacheLevel level, read_level(into));
        CAIRN_TRY_ASSIGN(const cairn_offload_options given, read_struct(options, "options"));
        OffloadRequest request;
        CAIRN_TRY_ASSIGN(request.keys, read_keys(given.keys, given.key_count));
        if (given.priority > Retention::kMaxPriority) {
          return fail(ErrorCode::kInvalidArgument, str_cat("priority ", given.priority, " (expected 1 to 100, or 0)"));
        }
        if (given.priority != 0) {
          request.priority = given.priority;
        }
        request.deadline = deadline_of(given.deadline_ms).value_or(request.deadline);
        request.done = [state](OffloadOutcome&& copied) {
          state->blocks = static_cast<std::uint32_t>(std::ranges::count(copied.is_below, true));
          state->is_below = std::move(copied.is_below);
          state->ended.release();
        };
        CAIRN_TRY_ASSIGN(const OffloadRequestId id, on.offload(level, std::move(request)));
        return std::pair(level, id);
      },
      [](const KvBlockManager& on, const std::pair<CacheLevel, OffloadRequestId>& id) {
        on.cancel(id.first, id.second);
      });
}

int32_t cairn_future_wait(cairn_future* future, uint64_t timeout_ms, cairn_future_outcome* outcome,
                          cairn_error* error) {
  return guarded(error, [&]() -> Status {
    FutureState& state = *future->state;
    if (!state.ended.try_acquire_for(limited_ms(timeout_ms))) {
      return fail(ErrorCode::kExpired, str_cat("the copy is still in flight after ", timeout_ms, " ms"));
    }
    state.ended.release();
    if (state.error) {
      return Unexpected(*state.error);
    }
    if (outcome == nullptr) {
      return {};
    }
    cairn_future_outcome out{};
    out.blocks = state.blocks;
    out.from_device = state.from[index_of(CacheLevel::kG1)];
    out.from_host = state.from[index_of(CacheLevel::kG2)];
    out.from_disk = state.from[index_of(CacheLevel::kG3)];
    out.not_worth_it = state.not_worth_it;
    return write_struct(outcome, out, "outcome");
  });
}

cairn_blocks* cairn_future_take_blocks(cairn_future* future) {
  return guarded_or<cairn_blocks*>(nullptr, [&]() -> cairn_blocks* {
    if (!has_ended(future) || future->state->held.empty()) {
      return nullptr;
    }
    // Memory first: the blocks are moved only once there is some.
    auto taken = std::make_unique<cairn_blocks>(cairn_blocks{ImmutableBlocks()});
    taken->blocks.emplace<ImmutableBlocks>(std::exchange(future->state->held, ImmutableBlocks()));
    return taken.release();
  });
}

size_t cairn_future_is_below(const cairn_future* future, uint8_t* is_below, size_t capacity) {
  if (!has_ended(future)) {
    return 0;
  }
  const std::vector<bool>& all = future->state->is_below;
  for (std::size_t i = 0; i < std::min(all.size(), capacity); ++i) {
    is_below[i] = all[i] ? 1 : 0;
  }
  return all.size();
}

void cairn_future_cancel(cairn_future* future) {
  const Lifetime::Use use(*future->lifetime);
  if (use.is_good()) {
    guarded_or(0, [&] {
      future->cancel(*future->manager);
      return 0;
    });
  }
}

void cairn_future_destroy(cairn_future* future) { delete future; }
