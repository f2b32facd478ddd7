// ThreadBackend: pread(), pwrite() and fdatasync() on one thread for each request that may be in flight.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <thread>
#include <vector>

#include "cairn/base/mutex.h"
#include "cairn/transfer/io_backend.h"

namespace cairn {

class ThreadBackend final : public IoBackend {
 public:
  // `why`: why io_uring is not used, for describe(); may be empty.
  ThreadBackend(std::uint32_t depth, std::string why);
  ~ThreadBackend() override;

  [[nodiscard]] std::uint32_t depth() const override { return depth_; }
  [[nodiscard]] std::uint32_t add_file(int descriptor) override;
  void remove_file(std::uint32_t file) override { files_[file] = kNone; }
  void add_memory(std::byte* /*base*/, std::uint64_t /*bytes*/) override {}
  void remove_memory(const std::byte* /*base*/) override {}
  void queue(const IoRequest& request) override;
  void reap(std::vector<IoResult>& out, Duration wait) override;
  void wake() override;
  [[nodiscard]] std::string describe() const override;

 private:
  static constexpr int kNone = -1;
  struct Call {
    IoRequest request;
    int descriptor = kNone;
  };

  void run();
  void stop();

  const std::uint32_t depth_;
  const std::string why_;
  std::vector<int> files_;    // of the user's thread alone, like the next two
  std::vector<Call> queued_;  // not yet handed to the threads
  std::uint32_t in_flight_ = 0;

  Mutex mutex_{LockRank::kExecutor};
  std::condition_variable_any called_;
  std::condition_variable_any returned_;
  std::deque<Call> calls_ CAIRN_GUARDED_BY(mutex_);
  std::vector<IoResult> results_ CAIRN_GUARDED_BY(mutex_);
  bool woken_ CAIRN_GUARDED_BY(mutex_) = false;
  bool closed_ CAIRN_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace cairn
