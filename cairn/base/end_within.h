// end_within(): destroys an object whose destructor waits for I/O, and does not wait for ever.
//
// I/O may never return: a disk hangs, a file server is gone. Memory that it may still touch cannot be freed, so the only
// choice is who waits for it. A thread of its own destroys the object. If that takes longer than the caller wants to wait,
// the thread goes on by itself and the object stays whole, memory, files and all, until the I/O returns, or for as long as
// the process lives.
//
// Thread safety: any thread may call.
#pragma once

#include <algorithm>
#include <chrono>
#include <exception>
#include <memory>
#include <semaphore>
#include <thread>
#include <utility>

#include "cairn/base/clock.h"

namespace cairn {

// How long the stop of something may take that waits `shutdown` for its copies: as long again for threads and files, and a
// second on a machine that is busy.
[[nodiscard]] constexpr Duration end_limit(Duration shutdown) {
  return 2 * std::clamp<Duration>(shutdown, Duration::zero(), std::chrono::hours(24)) + std::chrono::seconds(1);
}

// Returns whether the object is gone. `longest` is of the machine's time.
template <typename T>
[[nodiscard]] bool end_within(std::unique_ptr<T> object, Duration longest) {
  std::shared_ptr<std::binary_semaphore> ended;
  try {
    ended = std::make_shared<std::binary_semaphore>(0);
    std::thread([object = std::move(object), ended]() mutable {
      object.reset();
      ended->release();
    }).detach();
  } catch (const std::exception&) {
    object.reset();  // there is no thread, or no memory for one: here, if it did not go with the thread's function
    return true;
  }
  return ended->try_acquire_for(std::min<Duration>(longest, std::chrono::hours(72)));
}

}  // namespace cairn
