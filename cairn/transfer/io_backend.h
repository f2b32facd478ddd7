// IoBackend: many reads and writes of files under way at once, by whatever the machine has for it.
//
// Does:     takes requests up to a depth, hands them to the kernel in batches, and gives back what each call returned:
//           bytes, which may be fewer than asked for, or an error number. Judges nothing and repeats nothing.
// Owner:    one user. Files and memory of a request stay until its result was given back.
// Threads:  all calls from the one thread that made it; wake() from any.
// Fails:    make_io_backend(): what was asked for and is not there, with the reason.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cairn/base/clock.h"
#include "cairn/base/result.h"

namespace cairn {

enum class IoOperation : std::uint8_t { kRead, kWrite, kSync };

struct IoRequest {
  IoOperation operation = IoOperation::kRead;
  std::uint32_t file = 0;       // from add_file()
  std::uint64_t offset = 0;     // kRead, kWrite
  std::byte* memory = nullptr;  // kRead, kWrite
  std::uint32_t bytes = 0;      // kRead, kWrite
  std::uint64_t token = 0;      // comes back with the result; below kMaxToken
  static constexpr std::uint64_t kMaxToken = std::uint64_t{1} << 62;
};

struct IoResult {
  std::uint64_t token = 0;
  std::int32_t result = 0;  // bytes, or an error number negated
};

class IoBackend {
 public:
  IoBackend() = default;
  IoBackend(const IoBackend&) = delete;
  IoBackend& operator=(const IoBackend&) = delete;
  // Waits for what is under way.
  virtual ~IoBackend() = default;

  // Requests that may be under way at once.
  [[nodiscard]] virtual std::uint32_t depth() const = 0;

  // Files are named by number. The descriptor stays the caller's, and open until the file is removed.
  [[nodiscard]] virtual std::uint32_t add_file(int descriptor) = 0;
  virtual void remove_file(std::uint32_t file) = 0;
  // Memory that requests will name, told so that the kernel can be made to know it; other memory works as well.
  // Pieces do not overlap. To be removed before it is unmapped, or soon after: until then its pages are not freed.
  virtual void add_memory(std::byte* base, std::uint64_t bytes) = 0;
  virtual void remove_memory(const std::byte* base) = 0;

  // Requires: fewer than depth() requests without a result.
  virtual void queue(const IoRequest& request) = 0;
  // Starts what was queued, then waits until there is a result, wake() was called or `wait` has passed, and appends the
  // results to `out`.
  virtual void reap(std::vector<IoResult>& out, Duration wait) = 0;
  // The reap() under way, or else the next one, returns without waiting.
  virtual void wake() = 0;

  // "io_uring, 16 in flight, files registered, buffers not registered: ..."
  [[nodiscard]] virtual std::string describe() const = 0;
};

enum class IoMethod : std::uint8_t {
  kBest,     // io_uring where it works, else threads
  kUring,    // or fail
  kThreads,  // pread() and pwrite()
};

// Chosen by what a real write and read through it do, in memory of its own. For kBest, describe() says why not io_uring.
[[nodiscard]] Result<std::unique_ptr<IoBackend>> make_io_backend(IoMethod method, std::uint32_t depth);

}  // namespace cairn
