// internal::Run: the blocks of a handle, and what can be done with them. The handles in blocks.h decide which of it
// their holder may do.
//
// Ownership: move-only. The ids are in memory that the pool recycles; a run that holds any is ended by one of the calls
//            below that say so, not by its destructor.
// Thread safety: as the handle around it. Every call locks the pool once, unless it says otherwise.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "cairn/base/ids.h"
#include "cairn/base/result.h"
#include "cairn/pool/pool_observer.h"
#include "cairn/tokens/block_key.h"
#include "cairn/tokens/hashes.h"

namespace cairn {

struct BlockNames;
struct Retention;

namespace internal {

class PoolState;

class Run {
 public:
  Run() = default;
  Run(PoolState* pool, BlockId* block_ids, std::uint32_t size, std::uint32_t capacity)
      : pool_(pool), block_ids_(block_ids), size_(size), capacity_(capacity) {}
  Run(Run&& other) noexcept
      : pool_(other.pool_),
        block_ids_(std::exchange(other.block_ids_, nullptr)),
        size_(std::exchange(other.size_, 0)),
        capacity_(std::exchange(other.capacity_, 0)) {}
  Run& operator=(Run&& other) noexcept {
    std::swap(pool_, other.pool_);
    std::swap(block_ids_, other.block_ids_);
    std::swap(size_, other.size_);
    std::swap(capacity_, other.capacity_);
    return *this;
  }
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;
  ~Run() = default;

  [[nodiscard]] PoolState* pool() const { return pool_; }
  [[nodiscard]] std::span<BlockId> block_ids() { return {block_ids_, size_}; }
  [[nodiscard]] std::span<const BlockId> block_ids() const { return {block_ids_, size_}; }
  [[nodiscard]] std::uint32_t size() const { return size_; }
  // Whether it has memory of the pool, and so has to be ended.
  [[nodiscard]] bool is_open() const { return block_ids_ != nullptr; }

  // For the code that fills the run.
  [[nodiscard]] std::uint32_t capacity() const { return capacity_; }
  [[nodiscard]] BlockId* storage() const { return block_ids_; }
  void resize(std::uint32_t size) { size_ = size; }
  void push_back(BlockId block_id) { block_ids_[size_++] = block_id; }

  // Any blocks.
  [[nodiscard]] BlockKey key(std::uint32_t i) const;  // without a lock. Requires: i < size(); else it aborts
  [[nodiscard]] std::vector<BlockFacts> facts() const;
  // Whether no fence was raised since the blocks were allocated (private ones) or registered, and none was discarded.
  [[nodiscard]] bool is_current() const;
  [[nodiscard]] Run split_front(std::uint32_t count);
  // Ends `other`. Requires: both are open and of one pool.
  void append(Run& other);

  // Private blocks. complete() takes no lock: nobody else sees the blocks.
  [[nodiscard]] Status complete(const BlockNames& names);
  [[nodiscard]] Status complete(std::span<const BlockFacts> facts);
  [[nodiscard]] Status register_blocks(const Retention& retention, std::span<const Token> tokens);
  void quarantine();
  void release_private();  // ends the run

  // Quarantined blocks. Both end the run.
  void release_quarantined();
  void abandon_quarantined();

  // Registered blocks.
  [[nodiscard]] Run share(std::uint32_t count) const;
  [[nodiscard]] Run pin() const;
  [[nodiscard]] Status set_retention(const Retention& retention);
  void set_reset_on_release(bool reset);
  void release_tail(std::uint32_t count);  // ends the run if `count` is 0
  // Each ends the run.
  void release();
  void release_pinned();
  void release_as_victims();
  void return_borrowed();

 private:
  PoolState* pool_ = nullptr;
  BlockId* block_ids_ = nullptr;
  std::uint32_t size_ = 0;
  std::uint32_t capacity_ = 0;
};

}  // namespace internal

}  // namespace cairn
