#include "cairn/transfer/simulated_executor_testing.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdint>
#include <deque>
#include <span>
#include <system_error>
#include <utility>
#include <vector>

#include "cairn/base/str_cat.h"
#include "cairn/transfer/block_walk.h"
#include "cairn/transfer/open_files.h"

namespace cairn {

namespace {

// The time that the ledger sees: while the past is caught up with, that of the moment it is about.
class CatchUpClock final : public Clock {
 public:
  explicit CatchUpClock(const Clock& clock) : clock_(clock) {}
  [[nodiscard]] TimePoint now() const override { return moment_ ? *moment_ : clock_.now(); }
  void be_at(std::optional<TimePoint> moment) { moment_ = moment; }

 private:
  const Clock& clock_;
  std::optional<TimePoint> moment_;
};

Status read_all(const Region& region, std::uint64_t offset, std::span<std::byte> into) {
  while (!into.empty()) {
    const ssize_t got = pread(region.file(), into.data(), into.size(), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) {
      continue;
    }
    if (got <= 0) {
      return fail(ErrorCode::kIo,
                  str_cat("reading ", into.size(), " bytes at ", offset, " of ", file_name(region.file()), ": ",
                          got == 0 ? "the file ends before" : std::generic_category().message(errno)));
    }
    into = into.subspan(static_cast<std::size_t>(got));
    offset += static_cast<std::uint64_t>(got);
  }
  return {};
}

Status write_all(const Region& region, std::uint64_t offset, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t put = pwrite(region.file(), bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (put < 0 && errno == EINTR) {
      continue;
    }
    if (put <= 0) {
      return fail(ErrorCode::kIo, str_cat("writing ", bytes.size(), " bytes at ", offset, " of ",
                                          file_name(region.file()), ": ", std::generic_category().message(errno)));
    }
    bytes = bytes.subspan(static_cast<std::size_t>(put));
    offset += static_cast<std::uint64_t>(put);
  }
  return {};
}

// One side of a box of one block. Memory is used where it is; of a file all the box's bytes are in a buffer if nothing
// lies between them, and otherwise each row has its turn in one.
class BoxSide {
 public:
  BoxSide(const Region& region, std::uint64_t offset, std::uint64_t span, std::uint64_t bytes, std::uint64_t row_bytes)
      : region_(region), offset_(offset), is_dense_(span == bytes) {
    if (!region_.is_host()) {
      buffer_.resize(is_dense_ ? bytes : row_bytes);
    }
  }

  [[nodiscard]] Status read_box() { return is_buffered_whole() ? read_all(region_, offset_, buffer_) : Status(); }
  [[nodiscard]] Status write_box() const {
    return is_buffered_whole() ? write_all(region_, offset_, buffer_) : Status();
  }
  [[nodiscard]] Status read_row(std::uint64_t at, std::uint64_t bytes) {
    return is_by_row() ? read_all(region_, offset_ + at, {buffer_.data(), bytes}) : Status();
  }
  [[nodiscard]] Status write_row(std::uint64_t at, std::uint64_t bytes) const {
    return is_by_row() ? write_all(region_, offset_ + at, {buffer_.data(), bytes}) : Status();
  }
  [[nodiscard]] std::byte* row(std::uint64_t at) {
    return region_.is_host() ? region_.base() + offset_ + at : is_dense_ ? buffer_.data() + at : buffer_.data();
  }

 private:
  [[nodiscard]] bool is_buffered_whole() const { return !region_.is_host() && is_dense_; }
  [[nodiscard]] bool is_by_row() const { return !region_.is_host() && !is_dense_; }

  const Region& region_;
  const std::uint64_t offset_;
  const bool is_dense_;
  std::vector<std::byte> buffer_;
};

Result<BlockSums> copy_box(const CopyPlan& plan, const CopyPlan::Box& box, const BlockPair& pair) {
  const BoxWalk walk(plan, box);
  std::uint64_t source_span = plan.row_bytes();
  std::uint64_t destination_span = plan.row_bytes();
  for (const CopyPlan::Level& level : box.levels) {
    source_span += (level.count - 1) * level.source_step;
    destination_span += (level.count - 1) * level.destination_step;
  }
  const std::uint64_t piece_bytes = std::max(plan.row_bytes(), box.run_bytes);
  BoxSide from(*plan.source().regions()[box.source_region], box.source_offset + pair.source * box.source_block_step,
               source_span, walk.bytes(), piece_bytes);
  BoxSide to(*plan.destination().regions()[box.destination_region],
             box.destination_offset + pair.destination * box.destination_block_step, destination_span, walk.bytes(),
             piece_bytes);
  BlockSums sums;
  Status status = from.read_box();
  walk.visit(0, walk.bytes(), [&](const BoxWalk::Rows& rows) {
    for (std::uint64_t row = 0; row < rows.rows && status; ++row) {
      const std::uint64_t source = rows.source_offset + row * rows.source_step;
      const std::uint64_t destination = rows.destination_offset + row * rows.destination_step;
      status = from.read_row(source, rows.row_bytes);
      if (status) {
        sums += copy_and_sum(to.row(destination), {from.row(source), rows.row_bytes},
                             rows.first_word + row * rows.word_step);
        status = to.write_row(destination, rows.row_bytes);
      }
    }
  });
  if (status) {
    status = to.write_box();
  }
  if (!status) {
    return Unexpected(status.error());
  }
  return sums;
}

Result<BlockSums> copy_block(const CopyPlan& plan, const BlockPair& pair) {
  BlockSums sums;
  for (const CopyPlan::Box& box : plan.boxes()) {
    Result<BlockSums> of_box = copy_box(plan, box, pair);
    if (!of_box) {
      return of_box;
    }
    sums += *of_box;
  }
  return sums;
}

}  // namespace

class SimulatedExecutor::Impl {
 public:
  Impl(const Clock& clock, const Options& options)
      : options_(options),
        clock_(clock),
        catch_up_clock_(clock),
        ledger_(catch_up_clock_, std::max<std::size_t>(options.limit, 1), TransferLedger::Callbacks::kOnRequest) {}

  Result<TransferId> submit(Transfer&& transfer) {
    catch_up(before_now());
    Result<TransferId> id = ledger_.accept(std::move(transfer));
    while (std::shared_ptr<ActiveTransfer> active = ledger_.try_take()) {
      const TimePoint deadline = active->transfer().deadline;
      queue_.push_back({.active = std::move(active), .deadline = deadline});
    }
    begin_next(clock_.now());
    callbacks_may_be_due_ = callbacks_may_be_due_ || id.has_value();  // of one that is empty, or late already
    return id;
  }

  void cancel(TransferId transfer) {
    catch_up(before_now());
    ledger_.cancel(transfer);
    callbacks_may_be_due_ = true;
  }

  // Everything up to now, in its order: whether the clock went there in one step or in many makes no difference.
  bool catch_up() { return catch_up(clock_.now()); }
  bool run_callbacks() {
    callbacks_may_be_due_ = ledger_.run_callbacks();  // which may have made others due
    return callbacks_may_be_due_;
  }

  void end() {
    ledger_.close();
    if (block_ends_) {
      end_block();
    }
    queue_.clear();
    while (ledger_.run_callbacks()) {
    }
  }

  [[nodiscard]] std::optional<TimePoint> next_time() const {
    return callbacks_may_be_due_ ? clock_.now() : next_event();
  }
  [[nodiscard]] const Options& options() const { return options_; }
  [[nodiscard]] ExecutorLoad load() const { return ledger_.load(); }

 private:
  struct Queued {
    std::shared_ptr<ActiveTransfer> active;
    std::uint32_t next_block = 0;
    bool has_begun = false;
    TimePoint deadline = TimePoint::max();  // that has not been noticed yet
  };

  // What happens at this very moment waits for run().
  [[nodiscard]] TimePoint before_now() const { return clock_.now() - Duration(1); }

  [[nodiscard]] std::optional<TimePoint> next_event() const {
    std::optional<TimePoint> next = block_ends_;
    for (const Queued& queued : queue_) {
      if (queued.deadline != TimePoint::max() && (!next || queued.deadline < *next)) {
        next = queued.deadline;
      }
    }
    return next;
  }

  bool catch_up(TimePoint until) {
    bool any = false;
    for (std::optional<TimePoint> next = next_event(); next && *next <= until; next = next_event()) {
      any = true;
      catch_up_clock_.be_at(next);
      if (block_ends_ == next) {
        end_block();
      }
      ledger_.check_deadlines();
      for (Queued& queued : queue_) {
        if (queued.deadline <= *next) {
          queued.deadline = TimePoint::max();
        }
      }
      begin_next(*next);
    }
    catch_up_clock_.be_at(std::nullopt);
    callbacks_may_be_due_ = callbacks_may_be_due_ || any;
    return any;
  }

  void begin_next(TimePoint now) {
    while (!block_ends_ && !queue_.empty()) {
      Queued& head = queue_.front();
      if (head.next_block == head.active->transfer().blocks.size()) {
        queue_.pop_front();
        continue;
      }
      if (!head.active->begin(head.next_block)) {
        ++head.next_block;
        continue;
      }
      const double bytes = static_cast<double>(head.active->transfer().plan->bytes_per_block());
      const double nanoseconds = options_.bytes_per_second > 0 ? bytes / options_.bytes_per_second * 1e9 : 0;
      block_ends_ = now + (head.has_begun ? Duration::zero() : options_.latency) + Duration(std::llround(nanoseconds));
      head.has_begun = true;
    }
  }

  void end_block() {
    Queued& head = queue_.front();
    const Transfer& transfer = head.active->transfer();
    const std::uint32_t block = head.next_block++;
    if (const Result<BlockSums> sums = copy_block(*transfer.plan, transfer.blocks[block].pair)) {
      head.active->finish(block, *sums);
    } else {
      head.active->fail(block, sums.error().message);
    }
    block_ends_.reset();
  }

  const Options options_;
  const Clock& clock_;
  CatchUpClock catch_up_clock_;
  TransferLedger ledger_;
  std::deque<Queued> queue_;
  std::optional<TimePoint> block_ends_;  // of the first in the queue
  bool callbacks_may_be_due_ = false;
};

SimulatedExecutor::SimulatedExecutor(const Clock& clock, const Options& options)
    : impl_(std::make_unique<Impl>(clock, options)) {}

SimulatedExecutor::~SimulatedExecutor() { impl_->end(); }

Result<TransferId> SimulatedExecutor::submit(Transfer&& transfer) {
  if (transfer.plan != nullptr && !can_move(*transfer.plan)) {
    return fail(ErrorCode::kInvalidArgument,
                str_cat("the plan moves blocks from ", to_string(transfer.plan->source().kind()), " to ",
                        to_string(transfer.plan->destination().kind()),
                        " memory; the simulated executor copies between host memory and buffered files"));
  }
  return impl_->submit(std::move(transfer));
}

void SimulatedExecutor::cancel(TransferId transfer) { impl_->cancel(transfer); }

void SimulatedExecutor::check_deadlines() { impl_->catch_up(); }

bool SimulatedExecutor::can_move(const CopyPlan& plan) const {
  const auto reaches = [](const RegionPtr& region) {
    return region->is_host() || (region->kind() == MemoryKind::kFile && !region->is_direct());
  };
  return std::ranges::all_of(plan.source().regions(), reaches) &&
         std::ranges::all_of(plan.destination().regions(), reaches);
}

ExecutorLoad SimulatedExecutor::load() const { return impl_->load(); }

std::string SimulatedExecutor::describe() const {
  const Options& options = impl_->options();
  return str_cat("simulated copies, ", options.latency.count(), " ns each",
                 options.bytes_per_second > 0 ? str_cat(" and ", std::llround(options.bytes_per_second / 1e6), " MB/s")
                                              : std::string());
}

bool SimulatedExecutor::run() {
  const bool any = impl_->catch_up();
  return impl_->run_callbacks() || any;
}

std::optional<TimePoint> SimulatedExecutor::next_time() const { return impl_->next_time(); }

}  // namespace cairn
