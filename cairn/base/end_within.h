// end_within(): destroys an object whose destructor waits for I/O, without waiting forever.
//
// I/O may never return: a disk hangs, a file server is gone. Memory that the I/O may still touch cannot be freed. So a
// separate thread destroys the object; if that takes longer than the caller wants to wait, the thread keeps waiting in the
// background, and the object keeps its memory and files until the I/O returns or the process ends.
//
// Thread safety: safe from any thread.
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

// How long a component may take to stop if it waits up to `shutdown` for its transfers: as long again for threads and
// files, and one more second for a busy machine.
[[nodiscard]] constexpr Duration end_limit(Duration shutdown) {
  return 2 * std::clamp<Duration>(shutdown, Duration::zero(), std::chrono::hours(24)) + std::chrono::seconds(1);
}

// Returns whether the object was destroyed in time. `longest` is time of the machine's clock.
template <typename T>
[[nodiscard]] bool end_within(std::unique_ptr<T> object, Duration longest) {
  std::shared_ptr<std::binary_semaphore> ended;
  std::thread destroys;
  try {
    ended = std::make_shared<std::binary_semaphore>(0);
    destroys = std::thread([object = std::move(object), ended]() mutable {
      object.reset();
      ended->release();
    });
  } catch (const std::exception&) {
    object.reset();  // no thread could be started: destroy it here, unless the thread's function did already
    return true;
  }
  const bool in_time = ended->try_acquire_for(std::min<Duration>(longest, std::chrono::hours(72)));
  // Joined, so that nothing of a thread that ended in time is left when the caller goes on.
  in_time ? destroys.join() : destroys.detach();
  return in_time;
}

}  // namespace cairn
