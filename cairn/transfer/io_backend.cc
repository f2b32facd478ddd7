#include "cairn/transfer/io_backend.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include "cairn/base/str_cat.h"
#include "cairn/transfer/thread_backend.h"

#if CAIRN_IO_URING
#include "cairn/transfer/io_uring_backend.h"
#endif

namespace cairn {

namespace {

constexpr std::uint32_t kMostInFlight = 1024;
constexpr std::uint32_t kProbeBytes = 4096;

std::string reason(int error) { return std::generic_category().message(error); }

// One request from beginning to end.
Status carry_out(IoBackend& backend, const IoRequest& request) {
  backend.queue(request);
  std::vector<IoResult> results;
  while (results.empty()) {
    backend.reap(results, Duration::max());
  }
  const std::int32_t result = results.front().result;
  const std::uint32_t wanted = request.operation == IoOperation::kSync ? 0 : request.bytes;
  if (result < 0 || static_cast<std::uint32_t>(result) != wanted) {
    constexpr const char* kNames[] = {"a read", "a write", "a sync"};
    return fail(ErrorCode::kUnavailable,
                str_cat(kNames[static_cast<int>(request.operation)], " for trial ",
                        result < 0 ? "failed: " + reason(-result) : str_cat("came to ", result, " bytes")));
  }
  return {};
}

// Setting up a ring can succeed where using it does not: pages are written to a file in memory and read back.
Status try_out(IoBackend& backend) {
  const int descriptor = memfd_create("cairn-probe", MFD_CLOEXEC);
  if (descriptor < 0) {
    return fail(ErrorCode::kUnavailable, str_cat("memfd_create(): ", reason(errno)));
  }
  void* const mapped =
      mmap(nullptr, std::size_t{kProbeBytes} * 2, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) {
    const int error = errno;
    close(descriptor);
    return fail(ErrorCode::kUnavailable, str_cat("two pages of memory: ", reason(error)));
  }
  auto* const pages = static_cast<std::byte*>(mapped);
  std::memset(pages, 0x5A, kProbeBytes);
  const std::uint32_t file = backend.add_file(descriptor);
  backend.add_memory(pages, std::uint64_t{kProbeBytes} * 2);
  IoRequest request = {.operation = IoOperation::kWrite, .file = file, .memory = pages, .bytes = kProbeBytes};
  Status status = carry_out(backend, request);
  if (status) {
    request.operation = IoOperation::kRead;
    request.memory = pages + kProbeBytes;
    status = carry_out(backend, request);
  }
  if (status) {
    request.operation = IoOperation::kSync;
    status = carry_out(backend, request);
  }
  if (status && std::memcmp(pages, pages + kProbeBytes, kProbeBytes) != 0) {
    status = fail(ErrorCode::kUnavailable, "the test read returned other bytes than were written");
  }
  backend.remove_memory(pages);
  backend.remove_file(file);
  munmap(mapped, std::size_t{kProbeBytes} * 2);
  close(descriptor);
  return status;
}

Result<std::unique_ptr<IoBackend>> make_uring([[maybe_unused]] std::uint32_t depth) {
#if CAIRN_IO_URING
  Result<std::unique_ptr<IoUringBackend>> made = IoUringBackend::make(depth);
#else
  Result<std::unique_ptr<IoBackend>> made =
      fail(ErrorCode::kUnavailable, "built without io_uring, because liburing was older than 2.3");
#endif
  if (!made) {
    return Unexpected(Error(made.error()));
  }
  std::unique_ptr<IoBackend> backend = *std::move(made);
  if (Status status = try_out(*backend); !status) {
    return fail(status.error().code, "io_uring: " + status.error().message);
  }
  return backend;
}

}  // namespace

Result<std::unique_ptr<IoBackend>> make_io_backend(IoMethod method, std::uint32_t depth) {
  if (depth == 0 || depth > kMostInFlight) {
    return fail(ErrorCode::kInvalidArgument, str_cat(depth, " requests in flight; give 1 to ", kMostInFlight));
  }
  std::string why;
  if (method != IoMethod::kThreads) {
    Result<std::unique_ptr<IoBackend>> made = make_uring(depth);
    if (made || method == IoMethod::kUring) {
      return made;
    }
    why = made.error().message;
  }
  std::unique_ptr<IoBackend> threads = std::make_unique<ThreadBackend>(depth, std::move(why));
  return threads;
}

}  // namespace cairn
