// FileTransfers: the transfers that a FileExecutor has begun. Cuts them into copies, makes each a request of the backend, and
// ends blocks when all their copies have ended.
//
// Thread safety: none; used by the I/O thread of the executor. The checksums are computed by the work threads, which end the
// blocks whose last part they are.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cairn/base/result.h"
#include "cairn/transfer/copy_plan.h"
#include "cairn/transfer/io_backend.h"
#include "cairn/transfer/open_files.h"
#include "cairn/transfer/transfer_ledger.h"
#include "cairn/transfer/work_threads.h"

namespace cairn {

class FileTransfers {
 public:
  // Backend and work threads outlive it, and the work threads end only after what it posted is done.
  FileTransfers(IoBackend& backend, WorkThreads& workers, std::uint64_t copy_bytes);
  FileTransfers(const FileTransfers&) = delete;
  FileTransfers& operator=(const FileTransfers&) = delete;
  // Requires: idle().
  ~FileTransfers();

  void add(std::shared_ptr<ActiveTransfer> taken);
  // Queues requests while there are any to make and the backend has room.
  void queue_requests();
  [[nodiscard]] bool has_room() const { return !free_requests_.empty(); }
  // Requires: has_room().
  void queue_sync(const RegionPtr& region, std::function<void(const Status&)> done);
  void handle(const IoResult& result);
  // Nothing is pending, and the kernel has no request.
  [[nodiscard]] bool idle() const;
  // Whether describe() has changed since the last call.
  [[nodiscard]] bool news() { return std::exchange(news_, false); }
  [[nodiscard]] std::string describe() const;

 private:
  struct Block {
    // Copies, and for a write its sum, that have not ended. The thread that ends the last one ends the block.
    std::atomic<std::uint32_t> parts{0};
    const std::string* error = nullptr;  // set by the I/O thread before its part ends
    BlockSums sums;                      // of a write; set by a work thread before its part ends
  };
  // A transfer in flight. Shared by its requests and by the work threads.
  struct InFlight {
    std::shared_ptr<ActiveTransfer> active;
    bool writes = false;
    OpenFiles::Access access = OpenFiles::Access::kWholePages;
    std::vector<Block> blocks;
    std::uint32_t next_block = 0;  // blocks before it have begun, or never will
    std::vector<Copy> copies;      // of the blocks that began last; pairs are numbered in the whole transfer
    std::size_t next_of_copies = 0;
    std::deque<std::string> errors;  // a deque: blocks point to them

    [[nodiscard]] const CopyPlan& plan() const { return *active->transfer().plan; }
    [[nodiscard]] const RegionPtr& file_region(const Copy& copy) const;
    [[nodiscard]] const RegionPtr& host_region(const Copy& copy) const;
    // Requires: the bytes of the whole block are in the host's memory.
    [[nodiscard]] BlockSums sum(std::uint32_t block) const;
    // Returns whether it was the last part of the block.
    [[nodiscard]] bool end_part(std::uint32_t block);
    void end_block(std::uint32_t block);
  };
  using InFlightPtr = std::shared_ptr<InFlight>;
  struct PendingCopy {
    InFlightPtr transfer;
    Copy copy;
  };
  // What one request of the backend is for.
  struct Request {
    InFlightPtr transfer;  // null: a sync, or a free request
    Copy copy;
    OpenFiles::Handle file;
    std::uint64_t over = 0;       // bytes of the copy that were read or written
    std::uint32_t tries = 0;      // in a row that moved no bytes
    std::byte* buffer = nullptr;  // aligned; allocated when it is first needed, and kept
    bool through_buffer = false;
    RegionPtr synced;  // of a sync, like `done`
    std::function<void(const Status&)> done;

    [[nodiscard]] std::byte* host_memory() const;
    [[nodiscard]] std::uint64_t file_offset() const;
  };

  [[nodiscard]] bool next_copy(PendingCopy& next);
  [[nodiscard]] bool next_copy_of(std::deque<InFlightPtr>& transfers, PendingCopy& next);
  void begin_blocks(const InFlightPtr& shared);
  [[nodiscard]] static std::uint32_t blocks_of_work(const InFlight& transfer);
  void sum_what_is_written(const InFlightPtr& transfer, std::uint32_t first, std::uint32_t count);
  void check_what_was_read(const InFlightPtr& transfer, std::uint32_t first, std::uint32_t count);
  void start(PendingCopy&& next);
  void start_request(std::uint32_t number);
  void handle_copy(std::uint32_t number, std::int32_t result);
  // The kernel refused a direct request. Returns whether to repeat it buffered.
  [[nodiscard]] bool give_up_direct(Request& request, std::int32_t result);
  void end_copy(std::uint32_t number);
  void fail_copy(std::uint32_t number, const std::string& error);
  // Repeats what is left of a copy of several blocks, one copy for each block.
  void split(const InFlightPtr& transfer, const Copy& copy, std::uint64_t over);
  // Ends one part of each of the copy's blocks; all of them fail if there is an error.
  void end_parts(const InFlightPtr& transfer, const Copy& copy, const std::string* error);
  [[nodiscard]] Request& take_request(std::uint32_t& number);
  void release(std::uint32_t number);

  IoBackend& backend_;
  WorkThreads& workers_;
  const std::uint64_t copy_bytes_;
  OpenFiles files_;
  std::deque<PendingCopy> again_;  // of copies that failed, to be repeated block by block
  std::deque<InFlightPtr> reads_;
  std::deque<InFlightPtr> writes_;
  bool writes_turn_ = false;
  bool news_ = false;
  std::vector<Request> requests_;
  std::vector<std::uint32_t> free_requests_;
  std::vector<BlockPair> pairs_;  // scratch
  std::vector<Copy> copies_;      // scratch
};

}  // namespace cairn
