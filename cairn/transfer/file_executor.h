// FileExecutor: moves blocks between host memory and files.
//
// Does:     large copies, several transfers at once, a bounded number under way: by io_uring where it works, by threads
//           with pread() and pwrite() where it does not. Direct where the file's region is and blocks are made of whole
//           pages; memory that is not aligned goes through aligned buffers. Reads and writes take turns, each oldest
//           first. Checksums are made and checked on threads of their own, while the disk works.
// Deadline: what the kernel has in its hands when a deadline passes stays unsettled until the kernel gives it back.
// Threads:  as TransferExecutor says. One thread submits and reaps for all transfers.
// Fails:    of a block: what the system said of its bytes, a file that ends too early. A copy of several blocks that
//           fails is done again block by block, so that only those fail that cannot be read or written.
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
    std::uint32_t in_flight = 16;                       // copies in the hands of the kernel; 1 to 1024
    std::uint64_t copy_bytes = std::uint64_t{1} << 20;  // of the largest copy: a power of two, 64 KiB to 1 GiB
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

  // Makes what was written durable: `done` gets success once every block of the region whose transfer was done before
  // this call is on the device and survives a loss of power. An error there means that any of them may be lost.
  // kExpired: the deadline passed first, and nothing is known. `done` runs on a thread of the executor.
  // Fails: kInvalidArgument for a region that is no file, kExhausted like submit().
  [[nodiscard]] Status flush(RegionPtr region, TimePoint deadline, std::function<void(const Status&)> done);

 private:
  struct Flush {
    RegionPtr region;
    TimePoint deadline = TimePoint::max();
    std::function<void(const Status&)> done;  // none: it was told
    bool started = false;
  };

  FileExecutor(const Clock& clock, const Options& options);
  void run();
  void start_flushes(FileTransfers& transfers);
  void tell(Flush& flush, const Status& status);
  void expire_flushes();
  void describe_again(const FileTransfers& transfers);
  // How long the I/O thread may wait before a flush is late.
  [[nodiscard]] Duration longest_wait() const;

  const Clock& clock_;
  const Options options_;
  // Made by the I/O thread, and there for wake() until after the last callback.
  std::unique_ptr<IoBackend> backend_;
  std::unique_ptr<WorkThreads> workers_;

  mutable Mutex mutex_{LockRank::kExecutor};
  std::deque<std::shared_ptr<Flush>> flushes_ CAIRN_GUARDED_BY(mutex_);  // until the kernel is done with them
  std::string description_ CAIRN_GUARDED_BY(mutex_);
  bool closing_ CAIRN_GUARDED_BY(mutex_) = false;
  TransferLedger ledger_;  // after what its callbacks use when they submit
  std::thread thread_;
};

}  // namespace cairn
