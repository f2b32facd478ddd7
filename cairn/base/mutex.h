// Mutex: an annotated, ranked lock for short critical sections; MutexLock: the only way to take it.
//
// Does:        spins briefly, then parks in the kernel. An unlock wakes at most one waiter, and none while one that was
//              woken before is still trying: under contention the running thread goes on instead of paying a system
//              call for each unlock, so that many threads together are not slower than one.
// Ranks:       a thread takes mutexes in increasing rank only, one of each rank. Debug and sanitizer builds check it
// and
//              abort with both ranks; the order is the list in LockRank and nowhere else.
// Threads:     that is what it is for. Not recursive.
// Not promised: fairness between threads.
#pragma once

#include <atomic>
#include <cstdint>

#include "cairn/base/thread_annotations.h"

namespace cairn {

// Lowest first: a holder of one may take any that stands below it in this list.
enum class LockRank : std::uint8_t {
  kManager = 5,        // what a KvBlockManager changes while it works: tiers' sizes, requests
  kBlockManager = 10,  // sequence tables of pool/block_manager.h
  kOffload = 14,       // the queue of one offloader; kOnboard and it are never held together
  kOnboard = 16,       // loads under way
  kAllocator = 20,     // pool/block_allocator.h
  kPool = 30,          // the block table of one pool
  kRegistry = 40,      // keys across tiers; told under a pool's lock
  kInbox = 45,         // what an offloader or a connector was told, also under a pool's lock
  kWake = 48,          // that a manager has something to do
  kEventLog = 50,      // told under a pool's lock
  kDiskFile = 55,      // entries of a disk tier's file
  kRankWork = 57,      // the copies of a rank
  kStepGate = 58,      // how far a rank's engine is
  kRankLine = 59,      // a rank's line to its leader; nothing is called under it
  kExecutor = 60,      // what an executor has in hand beside its ledger
  kTransfers = 70,     // the ledger of one executor; callbacks run outside it
  kOperations = 75,    // what a connector gave out, and what is over; nothing is called under it
  kHealth = 80,        // of one direction of one tier
  kMetrics = 90,       // the list of figures; nothing is called under it
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
  std::atomic<std::uint32_t> permits_{0};  // wake-ups granted and not yet taken; what waiters sleep on
  [[maybe_unused]] const LockRank rank_;   // read where ranks are checked
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
