#include "cairn/base/mutex.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "cairn/base/callback_scope.h"
#include "cairn/base/check.h"
#include "cairn/base/str_cat.h"

namespace cairn {

namespace {

constexpr int kSpins = 16;

void pause_briefly() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

void futex_wait(std::atomic<std::uint32_t>& word, std::uint32_t expected) {
  static_assert(sizeof(word) == sizeof(std::uint32_t));
  syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, expected, nullptr, nullptr, 0);
}

void futex_wake_one(std::atomic<std::uint32_t>& word) {
  syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
}

// Sleeps until a permit can be taken.
void take_permit(std::atomic<std::uint32_t>& permits) {
  std::uint32_t available = permits.load(std::memory_order_relaxed);
  while (true) {
    if (available == 0) {
      futex_wait(permits, 0);
      available = permits.load(std::memory_order_relaxed);
    } else if (permits.compare_exchange_weak(available, available - 1, std::memory_order_relaxed)) {
      return;
    }
  }
}

}  // namespace

void CallbackScope::check_not_under(const Mutex& mutex) {
  for (const CallbackScope* scope = innermost_; scope != nullptr; scope = scope->outer_) {
    CAIRN_CHECK(&scope->held_ != &mutex,
                str_cat(scope->what_,
                        " calls back into the object that called it, which would wait for itself forever, because the "
                        "callback runs under a lock; make the call from another thread"));
  }
}

void Mutex::lock_slow() {
  CallbackScope::check_not_under(*this);
  std::uint32_t woken_by_us = 0;  // kWoken once this thread owns that flag and has to clear it
  int spins = 0;
  std::uint32_t state = state_.load(std::memory_order_relaxed);
  while (true) {
    if ((state & kLocked) == 0) {
      if (state_.compare_exchange_weak(state, (state | kLocked) & ~woken_by_us, std::memory_order_acquire,
                                       std::memory_order_relaxed)) {
        return;
      }
    } else if (spins < kSpins) {
      ++spins;
      pause_briefly();
      state = state_.load(std::memory_order_relaxed);
    } else if (state_.compare_exchange_weak(state, (state + kWaiter) & ~woken_by_us, std::memory_order_relaxed)) {
      take_permit(permits_);
      woken_by_us = kWoken;
      spins = 0;
      state = state_.load(std::memory_order_relaxed);
    }
  }
}

void Mutex::wake_one() {
  std::uint32_t state = state_.load(std::memory_order_relaxed);
  while (state >= kWaiter && (state & (kLocked | kWoken)) == 0) {
    if (state_.compare_exchange_weak(state, (state - kWaiter) | kWoken, std::memory_order_relaxed)) {
      permits_.fetch_add(1, std::memory_order_relaxed);
      futex_wake_one(permits_);
      return;
    }
  }
}

#ifdef CAIRN_CHECK_LOCK_RANKS
namespace {

constexpr std::size_t kMaxHeld = 8;
thread_local LockRank held[kMaxHeld];
thread_local std::size_t held_count = 0;

}  // namespace

void Mutex::check_rank() const {
  CallbackScope::check_not_under(*this);
  if (held_count > 0) {
    const LockRank last = held[held_count - 1];
    CAIRN_CHECK(last < rank_, str_cat("lock order: rank ", static_cast<int>(rank_), " taken while rank ",
                                      static_cast<int>(last), " is held"));
  }
  CAIRN_CHECK(held_count < kMaxHeld, "lock order: more locks held than there are ranks");
  held[held_count++] = rank_;
}

void Mutex::forget_rank() const {
  CAIRN_CHECK(held_count > 0 && held[held_count - 1] == rank_, "locks are released in the reverse order of taking");
  --held_count;
}
#endif

}  // namespace cairn
