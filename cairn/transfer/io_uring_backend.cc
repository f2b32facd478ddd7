#include "cairn/transfer/io_uring_backend.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <system_error>

#include "cairn/base/check.h"
#include "cairn/base/str_cat.h"

namespace cairn {

namespace {

constexpr std::uint64_t kWakeToken = IoRequest::kMaxToken;
constexpr unsigned kFileTable = 256;
constexpr unsigned kBufferTable = 1U << 14U;  // the kernel's most

// The flags that save the most first; older kernels refuse them with EINVAL.
constexpr std::array kSetups = {
    IORING_SETUP_SUBMIT_ALL | IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_CLAMP,
    IORING_SETUP_SUBMIT_ALL | IORING_SETUP_COOP_TASKRUN | IORING_SETUP_CLAMP,
    IORING_SETUP_CLAMP,
};

std::string reason(int error) { return std::generic_category().message(error); }

// A new ring may be mapped where another thread's ring was before. The kernel orders the two; release and acquire of this
// counter say so to the thread sanitizer, which does not see the system calls of liburing.
std::atomic<std::uint32_t> g_rings_ended{0};

}  // namespace

Result<std::unique_ptr<IoUringBackend>> IoUringBackend::make(std::uint32_t depth) {
  std::unique_ptr<IoUringBackend> backend(new IoUringBackend(depth));
  CAIRN_TRY(backend->start());
  return backend;
}

Status IoUringBackend::start() {
  wakeup_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (wakeup_ < 0) {
    return fail(ErrorCode::kUnavailable, str_cat("eventfd(): ", reason(errno)));
  }
  int answer = -EINVAL;
  for (const unsigned flags : kSetups) {
    io_uring_params params = {};
    params.flags = flags;
    // One entry more than requests: the poll of the eventfd.
    answer = io_uring_queue_init_params(depth_ + 1, &ring_, &params);
    if (answer != -EINVAL) {
      break;
    }
  }
  if (answer < 0) {
    const char* const hint = answer == -EPERM    ? " (see the sysctl kernel.io_uring_disabled)"
                             : answer == -ENOMEM ? " (see RLIMIT_MEMLOCK)"
                                                 : "";
    return fail(ErrorCode::kUnavailable, str_cat("io_uring_setup: ", reason(-answer), hint));
  }
  ring_made_ = true;
  static_cast<void>(g_rings_ended.load(std::memory_order_acquire));
  CAIRN_TRY(check_operations());
  register_tables();
  return {};
}

Status IoUringBackend::check_operations() {
  if ((ring_.features & IORING_FEAT_EXT_ARG) == 0) {
    return fail(ErrorCode::kUnavailable, "io_uring of a kernel before 5.11: it cannot wait for a limited time");
  }
  if ((ring_.features & IORING_FEAT_NODROP) == 0) {
    return fail(ErrorCode::kUnavailable, "io_uring of a kernel that drops completions");
  }
  io_uring_probe* const probe = io_uring_get_probe_ring(&ring_);
  if (probe == nullptr) {
    return fail(ErrorCode::kUnavailable, "io_uring does not say what it can do");
  }
  struct Operation {
    int code;
    const char* name;
  };
  Status status;
  for (const Operation& operation :
       {Operation{IORING_OP_READ, "READ"}, Operation{IORING_OP_WRITE, "WRITE"}, Operation{IORING_OP_FSYNC, "FSYNC"},
        Operation{IORING_OP_READ_FIXED, "READ_FIXED"}, Operation{IORING_OP_WRITE_FIXED, "WRITE_FIXED"},
        Operation{IORING_OP_POLL_ADD, "POLL_ADD"}}) {
    if (io_uring_opcode_supported(probe, operation.code) == 0) {
      status = fail(ErrorCode::kUnavailable, str_cat("io_uring without ", operation.name));
      break;
    }
  }
  io_uring_free_probe(probe);
  return status;
}

void IoUringBackend::register_tables() {
  files_registered_ = io_uring_register_files_sparse(&ring_, kFileTable) == 0;
  if (const int answer = io_uring_register_buffers_sparse(&ring_, kBufferTable); answer != 0) {
    buffers_refused_ = reason(-answer);
    return;
  }
  free_buffers_.resize(kBufferTable);
  for (unsigned i = 0; i < kBufferTable; ++i) {
    free_buffers_[i] = static_cast<std::int32_t>(kBufferTable - 1 - i);
  }
}

IoUringBackend::~IoUringBackend() {
  if (ring_made_) {
    std::vector<IoResult> ignored;
    while (in_flight_ > 0) {
      reap(ignored, Duration::max());
    }
    g_rings_ended.fetch_add(1, std::memory_order_release);
    io_uring_queue_exit(&ring_);
  }
  if (wakeup_ >= 0) {
    close(wakeup_);
  }
}

std::uint32_t IoUringBackend::add_file(int descriptor) {
  const auto free = std::ranges::find(files_, -1, &File::descriptor);
  const auto file = static_cast<std::uint32_t>(free - files_.begin());
  if (free == files_.end()) {
    files_.emplace_back();
  }
  // A file that cannot be registered, because the table is full or the descriptor is none, is used by its descriptor:
  // what is wrong with it then shows as the result of the request.
  const bool registered =
      files_registered_ && file < kFileTable && io_uring_register_files_update(&ring_, file, &descriptor, 1) == 1;
  files_[file] = {.descriptor = descriptor, .registered = registered};
  return file;
}

void IoUringBackend::remove_file(std::uint32_t file) {
  if (files_[file].registered) {
    const int none = -1;
    const int answer = io_uring_register_files_update(&ring_, file, &none, 1);
    CAIRN_CHECK(answer == 1, "the kernel keeps a registered file that was removed");
  }
  files_[file] = {};
}

void IoUringBackend::add_memory(std::byte* base, std::uint64_t bytes) {
  Memory& memory = memory_[base];
  memory.bytes = bytes;
  memory.pieces.assign((bytes + kPieceBytes - 1) / kPieceBytes, kUntried);
}

void IoUringBackend::remove_memory(const std::byte* base) {
  const auto found = memory_.find(base);
  CAIRN_CHECK(found != memory_.end(), "memory is removed that was not added");
  for (const std::int32_t buffer : found->second.pieces) {
    if (buffer < 0) {
      continue;
    }
    const iovec none = {};
    const __u64 tag = 0;
    const int answer = io_uring_register_buffers_update_tag(&ring_, static_cast<unsigned>(buffer), &none, &tag, 1);
    CAIRN_CHECK(answer == 1, "the kernel keeps a registered buffer that was removed");
    free_buffers_.push_back(buffer);
  }
  memory_.erase(found);
}

std::int32_t IoUringBackend::buffer_of(const std::byte* memory, std::uint32_t bytes) {
  auto found = memory_.upper_bound(memory);
  if (found == memory_.begin()) {
    return kRefused;
  }
  --found;
  auto& [base, known] = *found;
  const auto offset = static_cast<std::uint64_t>(memory - base);
  if (offset + bytes > known.bytes || offset / kPieceBytes != (offset + bytes - 1) / kPieceBytes) {
    return kRefused;
  }
  std::int32_t& buffer = known.pieces[offset / kPieceBytes];
  if (buffer == kUntried) {
    const std::uint64_t first = offset / kPieceBytes * kPieceBytes;
    // The kernel takes pages that it may write; const is only how we look for them.
    buffer = register_piece(const_cast<std::byte*>(base) + first, std::min(kPieceBytes, known.bytes - first));
  }
  return buffer;
}

std::int32_t IoUringBackend::register_piece(std::byte* base, std::uint64_t bytes) {
  if (free_buffers_.empty() || !buffers_refused_.empty()) {
    return kRefused;
  }
  const std::int32_t buffer = free_buffers_.back();
  const iovec piece = {.iov_base = base, .iov_len = bytes};
  const __u64 tag = 0;
  const int answer = io_uring_register_buffers_update_tag(&ring_, static_cast<unsigned>(buffer), &piece, &tag, 1);
  if (answer != 1) {
    // ENOMEM is RLIMIT_MEMLOCK and holds for all that follow. Others (EFAULT: memory that cannot be pinned for writing,
    // such as a read-only mapping) are about this memory alone.
    if (answer == -ENOMEM) {
      buffers_refused_ = "RLIMIT_MEMLOCK is used up; raise it, or grant CAP_IPC_LOCK";
    }
    return kRefused;
  }
  free_buffers_.pop_back();
  return buffer;
}

io_uring_sqe& IoUringBackend::next_entry() {
  io_uring_sqe* entry = io_uring_get_sqe(&ring_);
  if (entry == nullptr) {
    // Entries of a batch that the kernel took in part are still in the queue.
    static_cast<void>(io_uring_submit(&ring_));
    entry = io_uring_get_sqe(&ring_);
  }
  CAIRN_CHECK(entry != nullptr, "more requests than the ring has room for");
  return *entry;
}

void IoUringBackend::queue(const IoRequest& request) {
  CAIRN_CHECK(in_flight_ < depth_, "more requests than the depth of the backend");
  ++in_flight_;
  const File& file = files_[request.file];
  const int descriptor = file.registered ? static_cast<int>(request.file) : file.descriptor;
  const std::int32_t buffer =
      request.operation == IoOperation::kSync ? kRefused : buffer_of(request.memory, request.bytes);
  io_uring_sqe& entry = next_entry();
  switch (request.operation) {
    case IoOperation::kRead:
      if (buffer >= 0) {
        io_uring_prep_read_fixed(&entry, descriptor, request.memory, request.bytes, request.offset, buffer);
      } else {
        io_uring_prep_read(&entry, descriptor, request.memory, request.bytes, request.offset);
      }
      break;
    case IoOperation::kWrite:
      if (buffer >= 0) {
        io_uring_prep_write_fixed(&entry, descriptor, request.memory, request.bytes, request.offset, buffer);
      } else {
        io_uring_prep_write(&entry, descriptor, request.memory, request.bytes, request.offset);
      }
      break;
    case IoOperation::kSync:
      io_uring_prep_fsync(&entry, descriptor, IORING_FSYNC_DATASYNC);
      break;
  }
  if (file.registered) {
    io_uring_sqe_set_flags(&entry, IOSQE_FIXED_FILE);
  }
  io_uring_sqe_set_data64(&entry, request.token);
}

void IoUringBackend::watch_wakeups() {
  if (!watching_) {
    io_uring_sqe& entry = next_entry();
    io_uring_prep_poll_add(&entry, wakeup_, POLLIN);
    io_uring_sqe_set_data64(&entry, kWakeToken);
    watching_ = true;
  }
}

void IoUringBackend::reap(std::vector<IoResult>& out, Duration wait) {
  watch_wakeups();
  io_uring_cqe* first = nullptr;
  if (wait == Duration::max()) {
    static_cast<void>(io_uring_submit_and_wait_timeout(&ring_, &first, 1, nullptr, nullptr));
  } else {
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(wait);
    __kernel_timespec limit = {.tv_sec = seconds.count(), .tv_nsec = (wait - seconds).count()};
    static_cast<void>(io_uring_submit_and_wait_timeout(&ring_, &first, 1, &limit, nullptr));
  }
  // Whatever the call returned (the time passed, a signal, no memory for the batch just now): results that are there
  // are taken, and entries that were not stay queued for the next call.
  unsigned head = 0;
  unsigned seen = 0;
  io_uring_cqe* entry = nullptr;
  io_uring_for_each_cqe(&ring_, head, entry) {
    ++seen;
    if (io_uring_cqe_get_data64(entry) == kWakeToken) {
      watching_ = false;
      // Emptied first: a wake() before the flag is cleared saves its call, and this reap() is the one that returns.
      // Acquire pairs with the release of that wake(): what its caller did before is seen after this reap().
      eventfd_t count = 0;
      static_cast<void>(eventfd_read(wakeup_, &count));
      static_cast<void>(woken_.exchange(false, std::memory_order_acq_rel));
      continue;
    }
    out.push_back({.token = io_uring_cqe_get_data64(entry), .result = entry->res});
    --in_flight_;
  }
  io_uring_cq_advance(&ring_, seen);
}

void IoUringBackend::wake() {
  if (!woken_.exchange(true, std::memory_order_acq_rel)) {
    static_cast<void>(eventfd_write(wakeup_, 1));
  }
}

std::string IoUringBackend::describe() const {
  return str_cat("io_uring, ", depth_, " in flight, files ", files_registered_ ? "registered" : "not registered",
                 buffers_refused_.empty() ? std::string(", buffers registered")
                                          : str_cat(", buffers not registered: ", buffers_refused_));
}

}  // namespace cairn
