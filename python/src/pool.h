// Pools and the handles to their blocks, as Python objects: what the bindings of pools and of managers share.
//
// Ownership: C++ aborts if a pool dies before its handles. Here every Python object that refers to a pool has a PoolRef,
// whose owner keeps the pool alive, and a handle releases its blocks before it drops its owner.
// Thread safety: any. A handle has a mutex, so that several threads may use one Python object. It is only locked by threads
// that need no GIL until they unlock it.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <type_traits>
#include <utility>

#include "cairn/pool/block_pool.h"
#include "cairn/pool/blocks.h"
#include "python/src/binding.h"

namespace cairn::python {

void bind_pool(nb::module_& module);     // BlockPool
void bind_handles(nb::module_& module);  // the handles, Retention, BlockFacts; called by bind_pool()

// A pool, and what keeps it alive: the pool itself, or the manager that it is part of. The last PoolRef to go may destroy
// the owner under the GIL: an owner with threads has a deleter that ends it elsewhere.
struct PoolRef {
  std::shared_ptr<void> owner;
  BlockPool* pool = nullptr;
};

// A call on this many keys or blocks takes long enough to let other threads have the GIL meanwhile.
inline constexpr std::size_t kManyBlocks = 128;

// cairn.BlockPool. A binding of a manager returns one for each of its pools.
class PoolHandle {
 public:
  explicit PoolHandle(PoolRef pool) : ref_(std::move(pool)) {}
  PoolHandle(PoolHandle&&) noexcept = default;
  PoolHandle& operator=(PoolHandle&&) = delete;
  ~PoolHandle() = default;

  [[nodiscard]] const PoolRef& ref() const { return ref_.get(); }
  [[nodiscard]] BlockPool& pool() const { return *ref_.get().pool; }

 private:
  OfProcess<PoolRef> ref_;
};

// cairn.MutableBlocks, cairn.ImmutableBlocks and so on: `Blocks` is the C++ handle of the same name. A binding returns
// BlocksHandle<ImmutableBlocks>(pool, std::move(blocks)) by value.
template <typename Blocks>
class BlocksHandle {
 public:
  BlocksHandle(PoolRef pool, Blocks blocks) : state_(std::move(pool), std::move(blocks)) {}
  BlocksHandle(BlocksHandle&&) noexcept = default;
  BlocksHandle& operator=(BlocksHandle&&) = delete;
  ~BlocksHandle() { release(); }

  [[nodiscard]] const PoolRef& pool() const { return state_.get().pool; }
  [[nodiscard]] bool is_closed() const {
    const std::scoped_lock lock(state_.get().mutex);
    return !state_.get().blocks;
  }

  // Calls `act` with the blocks while no other thread has them; without the GIL if there are many. `act` must not touch
  // Python, and returns no reference. Raises if the handle is closed.
  template <typename Act>
  auto with(Act act) const {
    using Returned = std::invoke_result_t<Act, Blocks&>;
    if constexpr (std::is_void_v<Returned>) {
      if (!try_with(act)) {
        raise_closed();
      }
    } else {
      std::optional<Returned> returned;
      if (!try_with([&](Blocks& blocks) { returned.emplace(act(blocks)); })) {
        raise_closed();
      }
      return *std::move(returned);
    }
  }
  // The same; returns false if the handle is closed.
  template <typename Act>
  bool try_with(Act act) const {
    State& state = state_.get();
    bool many = false;
    {
      const std::scoped_lock lock(state.mutex);
      many = state.blocks && size_of(*state.blocks) >= kManyBlocks;
    }
    const ReleaseGilIf gil(many);  // before the lock: nobody waits for the GIL while it holds the mutex
    const std::scoped_lock lock(state.mutex);
    if (state.blocks) {
      act(*state.blocks);
    }
    return state.blocks.has_value();
  }
  // Takes the blocks, for a step that consumes its handle: the handle is closed then. Raises if it is closed already.
  [[nodiscard]] Blocks take() {
    State& state = state_.get();
    std::optional<Blocks> taken;
    {
      const std::scoped_lock lock(state.mutex);
      if (state.blocks) {
        taken.emplace(*std::move(state.blocks));
        state.blocks.reset();
      }
    }
    if (!taken) {
      raise_closed();
    }
    return *std::move(taken);
  }
  // Gives back what take() took, because the step failed.
  void put_back(Blocks blocks) {
    State& state = state_.get();
    const std::scoped_lock lock(state.mutex);
    state.blocks.emplace(std::move(blocks));
  }
  // Releases the blocks, if the handle has any. It has no effect in a forked child: the blocks are the parent's.
  void release() {
    if (!state_.is_of_this_process() || state_.is_closed()) {
      return;
    }
    State& state = state_.get();
    std::optional<Blocks> released;
    {
      const std::scoped_lock lock(state.mutex);
      if (state.blocks) {
        released.emplace(*std::move(state.blocks));
        state.blocks.reset();
      }
    }
    if (released) {
      const ReleaseGilIf gil(size_of(*released) >= kManyBlocks);
      released.reset();
    }
  }

  // Raises what a call on a closed handle raises.
  [[noreturn]] static void raise_closed() {
    raise(ErrorCode::kFailedPrecondition, "this handle is closed: a step consumed it, or it was released");
  }

 private:
  // Released in reverse order: the blocks before what keeps their pool alive.
  struct State {
    State(PoolRef of, Blocks held) : pool(std::move(of)), blocks(std::move(held)) {}

    PoolRef pool;
    std::mutex mutex;
    std::optional<Blocks> blocks;
  };

  static std::size_t size_of(const Blocks& blocks) {
    if constexpr (requires { blocks.block_ids(); }) {
      return blocks.block_ids().size();
    } else {
      return blocks.keys().size();
    }
  }
  OfProcess<State> state_;
};

}  // namespace cairn::python
