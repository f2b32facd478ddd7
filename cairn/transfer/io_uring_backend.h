// IoUringBackend: io_uring, with registered files and memory if the kernel allows it.
#pragma once

#include <liburing.h>

#include <atomic>
#include <map>
#include <vector>

#include "cairn/transfer/io_backend.h"

namespace cairn {

class IoUringBackend final : public IoBackend {
 public:
  // Fails if the kernel has no io_uring, forbids it, or lacks an operation; the message says which.
  [[nodiscard]] static Result<std::unique_ptr<IoUringBackend>> make(std::uint32_t depth);
  ~IoUringBackend() override;

  [[nodiscard]] std::uint32_t depth() const override { return depth_; }
  [[nodiscard]] std::uint32_t add_file(int descriptor) override;
  void remove_file(std::uint32_t file) override;
  void add_memory(std::byte* base, std::uint64_t bytes) override;
  void remove_memory(const std::byte* base) override;
  void queue(const IoRequest& request) override;
  void reap(std::vector<IoResult>& out, Duration wait) override;
  void wake() override;
  [[nodiscard]] std::string describe() const override;

 private:
  // A registered buffer has at most 1 GiB, and registering touches every page. So memory is registered in pieces, each when it is
  // first used: a terabyte neither fails nor delays the first transfer by minutes.
  static constexpr std::uint64_t kPieceBytes = std::uint64_t{64} << 20;
  static constexpr std::int32_t kUntried = -1;
  static constexpr std::int32_t kRefused = -2;

  struct File {
    int descriptor = -1;  // -1 if the entry is free
    bool registered = false;
  };
  struct Memory {
    std::uint64_t bytes = 0;
    std::vector<std::int32_t> pieces;  // number of the buffer, or kUntried, kRefused
  };

  explicit IoUringBackend(std::uint32_t depth) : depth_(depth) {}
  [[nodiscard]] Status start();
  [[nodiscard]] Status check_operations();
  void register_tables();
  // The number of the registered buffer that contains all of it; kRefused if there is none.
  [[nodiscard]] std::int32_t buffer_of(const std::byte* memory, std::uint32_t bytes);
  [[nodiscard]] std::int32_t register_piece(std::byte* base, std::uint64_t bytes);
  [[nodiscard]] io_uring_sqe& next_entry();
  void watch_wakeups();

  const std::uint32_t depth_;
  io_uring ring_ = {};
  bool ring_made_ = false;
  int wakeup_ = -1;                 // an eventfd that the ring polls
  std::atomic<bool> woken_{false};  // the eventfd holds a wake-up; saves the system call for all but the first
  bool watching_ = false;           // a poll of the eventfd is in flight
  std::uint32_t in_flight_ = 0;

  std::vector<File> files_;
  bool files_registered_ = false;
  std::map<const std::byte*, Memory> memory_;  // by base
  std::vector<std::int32_t> free_buffers_;
  std::string buffers_refused_;  // why no more are registered; empty if they are
};

}  // namespace cairn
