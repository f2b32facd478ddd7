// WorkThreads: a few threads that run functions in the order in which they were posted.
//
// Thread safety: post() from any thread. Functions run without the lock and may post. The destructor runs what was posted, then
// joins.
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
