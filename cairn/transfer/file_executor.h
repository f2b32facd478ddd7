// FileExecutor: copies blocks between host memory and files, with io_uring if it works here, else with threads that call pread()
// and pwrite(). Large copies, several transfers at once, a bounded number of requests in flight. Direct I/O is used if the file's
// region allows it and blocks consist of whole pages; memory that is not aligned goes through aligned buffers. Reads and writes
// take turns, each oldest first. Checksums are computed on separate threads while the disk works.
//
// A request that the kernel has when a deadline passes stays unsettled until the kernel gives it back.
//
// Thread safety: as TransferExecutor. One thread submits and reaps for all transfers.
// Errors: of a block, what the system said, or that the file ends too early. A copy of several blocks that fails is repeated
// block by block, so that only those fail that cannot be read or written.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "cairn/base/clock.h"
#include "cairn/base/mutex.h"
#include "cairn/base/result.h"
#include "cairn/memory/region.h"
#include "cairn/transfer/executor.h"
#include "cairn/transfer/io_backend.h"
#include "cairn/transfer/transfer_ledger.h"

namespace cairn {

class FileTransfers;
class WorkThreads;

class FileExecutor final : public TransferExecutor {
 public:
  struct Options {
    IoMethod method = IoMethod::kBest;
    std::uint32_t in_flight = 16;                       // requests that the kernel has at once; 1 to 1024
    std::uint64_t copy_bytes = std::uint64_t{1} << 20;  // the largest copy: a power of two, 64 KiB to 1 GiB
    std::uint32_t checksum_threads = 2;                 // at least 1
    std::size_t transfers = 256;                        // accepted at most
  };
  // `clock` outlives the executor.
  [[nodiscard]] static Result<std::unique_ptr<FileExecutor>> make(const Clock& clock, const Options& options);
  ~FileExecutor() override;

  [[nodiscard]] Result<TransferId> submit(Transfer&& transfer) override;
  void cancel(TransferId transfer) override;
  void check_deadlines() override;
  [[nodiscard]] bool can_move(const CopyPlan& plan) const override;
  [[nodiscard]] ExecutorLoad load() const override;
  [[nodiscard]] std::string describe() const override;

  // Makes what was written durable. `done` gets success when every block of the region whose transfer was done before this call
  // survives a loss of power. If it gets an error, any of them may be lost; with kExpired nothing is known. `done` runs on a
  // thread of the executor. kInvalidArgument if the region is not a file; kExhausted as submit().
  [[nodiscard]] Status flush(RegionPtr region, TimePoint deadline, std::function<void(const Status&)> done);

 private:
  struct Flush {
    RegionPtr region;
    TimePoint deadline = TimePoint::max();
    std::function<void(const Status&)> done;  // empty: it was called
    bool started = false;
  };

  FileExecutor(const Clock& clock, const Options& options);
  void run();
  void start_flushes(FileTransfers& transfers);
  void tell(Flush& flush, const Status& status);
  void expire_flushes();
  void describe_again(const FileTransfers& transfers);
  // How long the I/O thread may wait until the deadline of a flush.
  [[nodiscard]] Duration longest_wait() const;

  const Clock& clock_;
  const Options options_;
  // Made by the I/O thread; lives until after the last callback, which may call wake().
  std::unique_ptr<IoBackend> backend_;
  std::unique_ptr<WorkThreads> workers_;

  mutable Mutex mutex_{LockRank::kExecutor};
  std::deque<std::shared_ptr<Flush>> flushes_ CAIRN_GUARDED_BY(mutex_);  // until the kernel has ended them
  std::string description_ CAIRN_GUARDED_BY(mutex_);
  bool closing_ CAIRN_GUARDED_BY(mutex_) = false;
  TransferLedger ledger_;  // after what its callbacks use when they submit
  std::thread thread_;
};

}  // namespace cairn
