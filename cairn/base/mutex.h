// Mutex: a lock with a rank, for short critical sections. MutexLock is the only way to take it.
//
// A thread takes mutexes in increasing rank, at most one of each rank; LockRank is the list. Debug and sanitizer builds
// check this and abort with both ranks. The mutex is not recursive.
//
// lock() spins briefly, then sleeps in the kernel. unlock() wakes at most one waiter, and none while a waiter that was woken
// before is still trying, so that under contention an unlock rarely costs a system call. There is no fairness between
// threads.
#pragma once

#include <atomic>
#include <cstdint>

#include "cairn/base/thread_annotations.h"

namespace cairn {

// A thread that holds one may take any that is further down in this list. docs/architecture.md has the same list.
enum class LockRank : std::uint8_t {
  kManager = 5,          // state that a KvBlockManager changes while it runs: sizes of tiers, requests
  kBlockManager = 10,    // sequence tables of allocator/block_manager.h
  kOffload = 14,         // the queue of one offloader; never held together with kOnboard
  kOnboard = 16,         // loads in flight
  kAllocator = 20,       // allocator/block_allocator.cc
  kPool = 30,            // the blocks of one pool
  kRegistry = 40,        // keys across tiers; taken under a pool's lock
  kInbox = 45,           // notifications to an offloader or a connector; taken under a pool's lock
  kWake = 48,            // wakes the manager's thread; taken under a pool's lock
  kEventLog = 50,        // the event log; taken under a pool's lock
  kDiskFile = 55,        // entries of a disk tier's file
  kRankTransfers = 57,   // the transfers of a rank
  kStepGate = 58,        // the steps that a rank's engine has reached
  kRankConnection = 59,  // a rank's connection to its leader; nothing is called under it
  kExecutor = 60,        // state of an executor beside its ledger
  kTransfers = 70,       // the ledger of one executor; callbacks run without it
  kOperations = 75,      // operations of a connector and their outcomes; nothing is called under it
  kHealth = 80,          // health of a tier, throughput of a link, progress of a scrub
  kMetrics = 90,         // the list of metrics; nothing is called under it
};

class CAIRN_CAPABILITY("mutex") Mutex {
 public:
  explicit Mutex(LockRank rank) : rank_(rank) {}
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

  void lock() CAIRN_ACQUIRE() {
    check_rank();
    std::uint32_t unlocked = 0;
    // Acquire pairs with the release in unlock(): what the last holder wrote is seen.
    if (!state_.compare_exchange_strong(unlocked, kLocked, std::memory_order_acquire, std::memory_order_relaxed)) {
      lock_slow();
    }
  }

  // Whether a thread holds it now. It may be otherwise when the call returns: good for a choice of two right ways only.
  [[nodiscard]] bool is_locked() const { return (state_.load(std::memory_order_relaxed) & kLocked) != 0; }

  void unlock() CAIRN_RELEASE() {
    forget_rank();
    const std::uint32_t before = state_.fetch_sub(kLocked, std::memory_order_release);
    if (before != kLocked) {
      wake_one();
    }
  }

 private:
  static constexpr std::uint32_t kLocked = 1;
  static constexpr std::uint32_t kWoken = 2;   // a woken waiter is trying: no need to wake another
  static constexpr std::uint32_t kWaiter = 4;  // one of these for each parked waiter

  void lock_slow();
  void wake_one();
#ifdef CAIRN_CHECK_LOCK_RANKS
  void check_rank() const;
  void forget_rank() const;
#else
  void check_rank() const {}
  void forget_rank() const {}
#endif

  std::atomic<std::uint32_t> state_{0};
  std::atomic<std::uint32_t> permits_{0};  // wake-ups granted and not yet taken; waiters sleep on it
  [[maybe_unused]] const LockRank rank_;   // read only in builds that check ranks
};

class CAIRN_SCOPED_CAPABILITY MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) CAIRN_ACQUIRE(mutex) : mutex_(mutex) { mutex_.lock(); }
  ~MutexLock() CAIRN_RELEASE() { mutex_.unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex& mutex_;
};

}  // namespace cairn
