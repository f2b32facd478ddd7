#include "cairn/transfer/work_threads.h"

#include <utility>

#include "cairn/base/own_thread.h"

namespace cairn {

WorkThreads::WorkThreads(std::uint32_t threads) {
  threads_.reserve(threads);
  try {
    for (std::uint32_t i = 0; i < threads; ++i) {
      threads_.push_back(start_own_thread("cairn-work", [this] { run(); }));
    }
  } catch (...) {
    stop();  // those that were started
    throw;
  }
}

WorkThreads::~WorkThreads() { stop(); }

void WorkThreads::stop() {
  {
    const MutexLock lock(mutex_);
    closed_ = true;
  }
  posted_.notify_all();
  for (std::thread& thread : threads_) {
    thread.join();
  }
}

void WorkThreads::post(std::function<void()> work) {
  const MutexLock lock(mutex_);
  work_.push_back(std::move(work));
  posted_.notify_one();
}

void WorkThreads::run() {
  mutex_.lock();
  for (;;) {
    posted_.wait(mutex_, [this]() CAIRN_REQUIRES(mutex_) { return closed_ || !work_.empty(); });
    if (work_.empty()) {
      break;
    }
    std::function<void()> work = std::move(work_.front());
    work_.pop_front();
    mutex_.unlock();
    work();
    work = nullptr;  // released before the lock is taken: it may hold the last reference to a region
    mutex_.lock();
  }
  mutex_.unlock();
}

}  // namespace cairn
