// FileTransfers: the transfers that a file executor has begun, cut into requests for its backend and put together again
// from their results.
//
// Owner:    the I/O thread of the executor.
// Threads:  that one. Checksums are handed to the work threads, which end blocks by themselves.
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
  // All three outlive it, and the work threads do not end before what it posted is done.
  FileTransfers(IoBackend& backend, WorkThreads& workers, std::uint64_t copy_bytes);
  FileTransfers(const FileTransfers&) = delete;
  FileTransfers& operator=(const FileTransfers&) = delete;
  // Requires: idle().
  ~FileTransfers();

  void add(std::shared_ptr<ActiveTransfer> transfer);
  // Queues requests while there are any to make and the backend has room.
  void queue_requests();
  [[nodiscard]] bool has_room() const { return !free_requests_.empty(); }
  // Requires: has_room().
  void queue_sync(const RegionPtr& region, std::function<void(const Status&)> done);
  void handle(const IoResult& result);
  // Nothing to queue, and nothing in the hands of the kernel.
  [[nodiscard]] bool idle() const;
  // Files or memory came or changed since the last call: describe() says something else.
  [[nodiscard]] bool news() { return std::exchange(news_, false); }
  [[nodiscard]] std::string describe() const;

 private:
  struct Block {
    std::atomic<std::uint32_t> parts{0};  // copies, and of a write its sum, that are not over; the last one ends it
    const std::string* error = nullptr;   // set by the I/O thread before its part is over
    BlockSums sums;                       // of a write; set by a work thread before its part is over
  };
  // One transfer under way. Shared by its requests and by the work threads.
  struct Job {
    std::shared_ptr<ActiveTransfer> active;
    bool writes = false;
    OpenFiles::Access access = OpenFiles::Access::kWholePages;
    std::vector<Block> blocks;
    std::uint32_t next_block = 0;  // those before have begun or will not
    std::vector<Copy> copies;      // of the blocks begun last; pairs are numbered in the whole transfer
    std::size_t next_copy = 0;
    std::deque<std::string> errors;  // a deque: blocks point to them

    [[nodiscard]] const CopyPlan& plan() const { return *active->transfer().plan; }
    [[nodiscard]] const RegionPtr& file_region(const Copy& copy) const;
    [[nodiscard]] const RegionPtr& host_region(const Copy& copy) const;
    // The bytes of the whole block are in the host's memory.
    [[nodiscard]] BlockSums sum(std::uint32_t block) const;
    // Whether it was the last one.
    [[nodiscard]] bool end_part(std::uint32_t block);
    void end_block(std::uint32_t block);
  };
  using JobPtr = std::shared_ptr<Job>;
  struct Piece {
    JobPtr job;
    Copy copy;
  };
  // What one request is about.
  struct Request {
    JobPtr job;  // none: a sync, or a free request
    Copy copy;
    OpenFiles::Handle file;
    std::uint64_t over = 0;       // bytes of the copy that are read or written
    std::uint32_t tries = 0;      // that brought nothing
    std::byte* buffer = nullptr;  // the request's own, aligned; made when it is first needed
    bool through_buffer = false;
    RegionPtr synced;  // of a sync, like `done`
    std::function<void(const Status&)> done;

    [[nodiscard]] std::byte* host_memory() const;
    [[nodiscard]] std::uint64_t file_offset() const;
  };

  [[nodiscard]] bool next_piece(Piece& piece);
  [[nodiscard]] bool next_piece_of(std::deque<JobPtr>& jobs, Piece& piece);
  void begin_blocks(const JobPtr& shared);
  [[nodiscard]] static std::uint32_t blocks_of_work(const Job& job);
  void sum_what_is_written(const JobPtr& job, std::uint32_t first, std::uint32_t count);
  void check_what_was_read(const JobPtr& job, std::uint32_t first, std::uint32_t count);
  void start(Piece&& piece);
  void start_request(std::uint32_t number);
  void handle_copy(std::uint32_t number, std::int32_t result);
  // The kernel refused a direct request. Whether it is worth doing once more, buffered.
  [[nodiscard]] bool give_up_direct(Request& request, std::int32_t result);
  void end_copy(std::uint32_t number);
  void fail_copy(std::uint32_t number, const std::string& error);
  // What is left of a copy of several blocks is done again, for each block by itself.
  void split(const JobPtr& job, const Copy& copy, std::uint64_t over);
  // One part of each of the copy's blocks is over; an error is theirs all.
  void end_parts(const JobPtr& job, const Copy& copy, const std::string* error);
  [[nodiscard]] Request& take_request(std::uint32_t& number);
  void release(std::uint32_t number);

  IoBackend& backend_;
  WorkThreads& workers_;
  const std::uint64_t copy_bytes_;
  OpenFiles files_;
  std::deque<Piece> pieces_;  // parts of copies that are done again, block by block
  std::deque<JobPtr> reads_;
  std::deque<JobPtr> writes_;
  bool writes_turn_ = false;
  bool news_ = false;
  std::vector<Request> requests_;
  std::vector<std::uint32_t> free_requests_;
  std::vector<BlockPair> pairs_;  // scratch
  std::vector<Copy> copies_;      // scratch
};

}  // namespace cairn
