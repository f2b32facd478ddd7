#include "cairn/transfer/file_executor.h"

#include <algorithm>
#include <bit>
#include <future>
#include <utility>

#include "cairn/base/check.h"
#include "cairn/base/own_thread.h"
#include "cairn/base/str_cat.h"
#include "cairn/transfer/file_transfers.h"
#include "cairn/transfer/work_threads.h"

namespace cairn {

namespace {

constexpr std::uint64_t kLeastCopy = std::uint64_t{1} << 16;
constexpr std::uint64_t kMostCopy = std::uint64_t{1} << 30;

bool is_host(MemoryKind kind) { return kind == MemoryKind::kSystem || kind == MemoryKind::kPinned; }

}  // namespace

Result<std::unique_ptr<FileExecutor>> FileExecutor::make(const Clock& clock, const Options& options) {
  if (!std::has_single_bit(options.copy_bytes) || options.copy_bytes < kLeastCopy || options.copy_bytes > kMostCopy) {
    return fail(ErrorCode::kInvalidArgument,
                str_cat("copies of ", options.copy_bytes, " bytes; give a power of two from 64 KiB to 1 GiB"));
  }
  if (options.checksum_threads == 0 || options.transfers == 0) {
    return fail(ErrorCode::kInvalidArgument, "a file executor needs a thread for checksums and room for a transfer");
  }
  std::unique_ptr<FileExecutor> executor(new FileExecutor(clock, options));
  std::promise<Status> started;
  std::future<Status> status = started.get_future();
  executor->thread_ = start_own_thread("cairn-file", [&started, raw = executor.get()] {
    // A ring belongs to the thread that made it.
    Result<std::unique_ptr<IoBackend>> backend = make_io_backend(raw->options_.method, raw->options_.in_flight);
    if (!backend) {
      started.set_value(Unexpected(Error(backend.error())));
      return;
    }
    raw->backend_ = *std::move(backend);
    raw->describe_again(FileTransfers(*raw->backend_, *raw->workers_, raw->options_.copy_bytes));
    started.set_value({});
    raw->run();
  });
  CAIRN_TRY(status.get());
  return executor;
}

FileExecutor::FileExecutor(const Clock& clock, const Options& options)
    : clock_(clock),
      options_(options),
      workers_(std::make_unique<WorkThreads>(options.checksum_threads)),
      ledger_(clock, options.transfers) {}

FileExecutor::~FileExecutor() {
  ledger_.close();
  {
    const MutexLock lock(mutex_);
    closing_ = true;
  }
  if (backend_ != nullptr) {
    backend_->wake();
  }
  if (thread_.joinable()) {
    thread_.join();
  }
  workers_.reset();  // ends the blocks that are still to be checked; the ledger waits for them
}

Result<TransferId> FileExecutor::submit(Transfer&& transfer) {
  if (transfer.plan == nullptr || !can_move(*transfer.plan)) {
    return fail(ErrorCode::kInvalidArgument,
                transfer.plan == nullptr
                    ? std::string("a transfer without a plan")
                    : str_cat("a plan from ", to_string(transfer.plan->source().kind()), " to ",
                              to_string(transfer.plan->destination().kind()),
                              " memory; a file executor moves blocks between host memory and files"));
  }
  Result<TransferId> accepted = ledger_.accept(std::move(transfer));
  if (accepted) {
    backend_->wake();
  }
  return accepted;
}

void FileExecutor::cancel(TransferId transfer) { ledger_.cancel(transfer); }

bool FileExecutor::can_move(const CopyPlan& plan) const {
  const MemoryKind from = plan.source().kind();
  const MemoryKind to = plan.destination().kind();
  return (is_host(from) && to == MemoryKind::kFile) || (from == MemoryKind::kFile && is_host(to));
}

ExecutorLoad FileExecutor::load() const { return ledger_.load(); }

std::string FileExecutor::describe() const {
  const MutexLock lock(mutex_);
  return description_;
}

void FileExecutor::describe_again(const FileTransfers& transfers) {
  std::string text = transfers.describe();
  const MutexLock lock(mutex_);
  description_ = std::move(text);
}

void FileExecutor::check_deadlines() {
  ledger_.check_deadlines();
  expire_flushes();
}

void FileExecutor::run() {
  FileTransfers transfers(*backend_, *workers_, options_.copy_bytes);
  std::vector<IoResult> results;
  for (;;) {
    while (std::shared_ptr<ActiveTransfer> taken = ledger_.try_take()) {
      transfers.add(std::move(taken));
    }
    expire_flushes();
    start_flushes(transfers);
    transfers.queue_requests();
    if (transfers.idle()) {
      const MutexLock lock(mutex_);
      if (closing_ && flushes_.empty()) {
        break;
      }
    }
    if (transfers.news()) {
      describe_again(transfers);
    }
    results.clear();
    backend_->reap(results, longest_wait());
    for (const IoResult& result : results) {
      transfers.handle(result);
    }
  }
}

Status FileExecutor::flush(RegionPtr region, TimePoint deadline, std::function<void(const Status&)> done) {
  if (region == nullptr || region->kind() != MemoryKind::kFile) {
    return fail(ErrorCode::kInvalidArgument, "cannot flush: the region is not a file");
  }
  {
    const MutexLock lock(mutex_);
    if (closing_) {
      return fail(ErrorCode::kFailedPrecondition, "cannot flush: the file executor is closing");
    }
    if (flushes_.size() >= options_.transfers) {
      return fail(ErrorCode::kExhausted, str_cat(flushes_.size(), " flushes wait; try again after one is done"));
    }
    flushes_.push_back(std::make_shared<Flush>(Flush{std::move(region), deadline, std::move(done)}));
  }
  backend_->wake();
  return {};
}

void FileExecutor::start_flushes(FileTransfers& transfers) {
  while (transfers.has_room()) {
    std::shared_ptr<Flush> next;
    {
      const MutexLock lock(mutex_);
      const auto waiting = std::ranges::find(flushes_, false, [](const auto& flush) { return flush->started; });
      if (waiting == flushes_.end()) {
        return;
      }
      next = *waiting;
      next->started = true;
    }
    transfers.queue_sync(next->region, [this, next](const Status& status) {
      {
        const MutexLock lock(mutex_);
        std::erase(flushes_, next);
      }
      tell(*next, status);
    });
  }
}

void FileExecutor::tell(Flush& flush, const Status& status) {
  std::function<void(const Status&)> done;
  {
    const MutexLock lock(mutex_);
    done = std::exchange(flush.done, nullptr);
  }
  if (done) {
    workers_->post([done = std::move(done), status] { done(status); });
  }
}

void FileExecutor::expire_flushes() {
  std::vector<std::shared_ptr<Flush>> late;
  {
    const TimePoint now = clock_.now();
    const MutexLock lock(mutex_);
    if (flushes_.empty()) {
      return;
    }
    for (const std::shared_ptr<Flush>& flush : flushes_) {
      if (flush->done && flush->deadline <= now) {
        late.push_back(flush);
      }
    }
    // One that has not started is taken back; the others stay until the kernel gives them back.
    std::erase_if(flushes_, [now](const auto& flush) { return !flush->started && flush->deadline <= now; });
  }
  for (const std::shared_ptr<Flush>& flush : late) {
    tell(*flush, fail(ErrorCode::kExpired,
                      str_cat("flushing ", file_name(flush->region->file()), ": the deadline passed first")));
  }
}

Duration FileExecutor::longest_wait() const {
  Duration wait = Duration::max();
  const MutexLock lock(mutex_);
  if (flushes_.empty() || &clock_ != &steady_clock()) {
    return wait;
  }
  const TimePoint now = clock_.now();
  for (const std::shared_ptr<Flush>& flush : flushes_) {
    if (flush->done && flush->deadline != TimePoint::max()) {
      wait = std::min(wait, std::max(Duration::zero(), flush->deadline - now));
    }
  }
  return wait;
}

}  // namespace cairn
