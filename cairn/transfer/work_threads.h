// WorkThreads: a few threads that do what they are given, in the order it came in.
//
// Threads:  post() from any. Work runs outside the lock, and may post.
// Ends:     the destructor does what was posted, then joins.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <thread>
#include <vector>

#include "cairn/base/mutex.h"

namespace cairn {

class WorkThreads {
 public:
  explicit WorkThreads(std::uint32_t threads);
  WorkThreads(const WorkThreads&) = delete;
  WorkThreads& operator=(const WorkThreads&) = delete;
  ~WorkThreads();

  void post(std::function<void()> work);

 private:
  void run();
  void stop();

  Mutex mutex_{LockRank::kExecutor};
  std::condition_variable_any posted_;
  std::deque<std::function<void()>> work_ CAIRN_GUARDED_BY(mutex_);
  bool closed_ CAIRN_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace cairn
