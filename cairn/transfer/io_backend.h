// IoBackend: many reads and writes of files in flight at once, with io_uring or threads. Accepts requests up to a depth, hands
// them to the kernel in batches, and returns what each call returned: a number of bytes, which may be fewer than requested, or
// an error number. It repeats nothing.
//
// Thread safety: all calls from the thread that made it, except wake().
// Ownership: one user. The files and memory of a request stay until its result was returned.
// Errors: make_io_backend() if the method does not work here; the message says why.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cairn/base/clock.h"
#include "cairn/base/result.h"
#include "cairn/memory/region.h"

namespace cairn {

enum class IoOperation : std::uint8_t { kRead, kWrite, kSync };

struct IoRequest {
  IoOperation operation = IoOperation::kRead;
  std::uint32_t file = 0;       // from add_file()
  std::uint64_t offset = 0;     // kRead, kWrite
  std::byte* memory = nullptr;  // kRead, kWrite
  std::uint32_t bytes = 0;      // kRead, kWrite
  std::uint64_t token = 0;      // returned with the result; below kMaxToken
  static constexpr std::uint64_t kMaxToken = std::uint64_t{1} << 62;
};

struct IoResult {
  std::uint64_t token = 0;
  std::int32_t result = 0;  // bytes, or a negative error number
};

class IoBackend {
 public:
  IoBackend() = default;
  IoBackend(const IoBackend&) = delete;
  IoBackend& operator=(const IoBackend&) = delete;
  // Waits for the requests in flight.
  virtual ~IoBackend() = default;

  // Requests that may be in flight at once.
  [[nodiscard]] virtual std::uint32_t depth() const = 0;

  // Files are named by numbers. The caller keeps the descriptor open until it removes the file.
  [[nodiscard]] virtual std::uint32_t add_file(int descriptor) = 0;
  virtual void remove_file(std::uint32_t file) = 0;
  // Memory to register with the kernel; requests may name other memory as well. Must not overlap memory that was added. Remove
  // it before it is unmapped, or soon after: until then its pages are not freed.
  virtual void add_memory(std::byte* base, std::uint64_t bytes) = 0;
  virtual void remove_memory(const std::byte* base) = 0;

  // Requires: fewer than depth() requests without a result.
  virtual void queue(const IoRequest& request) = 0;
  // Starts what was queued, then waits until there is a result, wake() was called or `wait` has passed, and appends the
  // results to `out`.
  virtual void reap(std::vector<IoResult>& out, Duration wait) = 0;
  // Makes the current reap(), or else the next one, return without waiting.
  virtual void wake() = 0;

  // "io_uring, 16 in flight, files registered, buffers not registered: ..."
  [[nodiscard]] virtual std::string describe() const = 0;
};

// Tries a real write and read to see whether io_uring works. With kBest, describe() says why it does not.
[[nodiscard]] Result<std::unique_ptr<IoBackend>> make_io_backend(IoMethod method, std::uint32_t depth);

}  // namespace cairn
