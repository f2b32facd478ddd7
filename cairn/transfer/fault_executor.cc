#include "cairn/transfer/fault_executor.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "cairn/base/own_thread.h"
#include "cairn/base/str_cat.h"

namespace cairn {

namespace {

constexpr std::byte kFlippedBit{0x10};

// A number that depends on all of them: draws do not depend on the order in which blocks come.
std::uint64_t draw(std::uint64_t seed, std::uint64_t number, std::uint64_t use) {
  std::uint64_t value = seed + number * 0x9E3779B97F4A7C15ULL + use * 0xC2B2AE3D27D4EB4FULL;
  value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9ULL;
  value = (value ^ (value >> 27)) * 0x94D049BB133111EBULL;
  return value ^ (value >> 31);
}

Status flip_in_file(const Region& region, std::uint64_t offset) {
  // Direct reads and writes take whole, aligned pieces.
  const std::uint64_t unit = std::max<std::uint64_t>(region.alignment(), 4096);
  const std::uint64_t start = offset / unit * unit;
  const std::unique_ptr<void, decltype(&std::free)> buffer(std::aligned_alloc(unit, unit), &std::free);
  auto* bytes = static_cast<std::byte*>(buffer.get());
  const ssize_t got = bytes == nullptr ? -1 : pread(region.file(), bytes, unit, static_cast<off_t>(start));
  if (got <= static_cast<ssize_t>(offset - start)) {
    return fail(ErrorCode::kIo, str_cat("no byte to flip at ", offset, " of the file"));
  }
  bytes[offset - start] ^= kFlippedBit;
  if (pwrite(region.file(), bytes, static_cast<std::size_t>(got), static_cast<off_t>(start)) != got) {
    return fail(ErrorCode::kIo, str_cat("cannot write the flipped byte at ", offset, " of the file"));
  }
  return {};
}

Status flip_bit(const Region& region, std::uint64_t offset) {
  if (region.is_host()) {
    region.base()[offset] ^= kFlippedBit;
    return {};
  }
  if (region.kind() == MemoryKind::kFile) {
    return flip_in_file(region, offset);
  }
  return fail(ErrorCode::kInvalidArgument,
              str_cat("the processor does not reach ", to_string(region.kind()), " memory; give FaultOptions::flip"));
}

// About half of the block; null if it cannot be halved by layers or heads.
CopyPlanPtr half_of(const CopyPlanPtr& plan) {
  const KvShape& shape = plan->source().shape();
  if (!plan->is_whole() || shape != plan->destination().shape() || (shape.layers == 1 && shape.heads == 1)) {
    return nullptr;
  }
  BlockPart part;
  if (shape.layers > 1) {
    part.layers = shape.layers / 2;
  } else {
    part.heads = shape.heads / 2;
  }
  Result<CopyPlanPtr> half =
      CopyPlan::make(BlockLayoutPtr(plan, &plan->source()), BlockLayoutPtr(plan, &plan->destination()), part);
  return half.has_value() ? *half : nullptr;
}

}  // namespace

std::string_view to_string(Fault fault) {
  constexpr std::string_view kNames[] = {"none", "fail", "short", "delay", "corrupt", "corrupt in flight",
                                         "hang", "lose"};
  return kNames[static_cast<std::size_t>(fault)];
}

FaultExecutor::FaultExecutor(const Clock& clock, std::unique_ptr<TransferExecutor> inside, FaultOptions options)
    : clock_(clock),
      options_(std::move(options)),
      inside_(std::move(inside)),
      ledger_(clock, inside_->load().limit, options_.callbacks) {
  const bool delays = std::any_of(options_.rules.begin(), options_.rules.end(),
                                  [](const FaultRule& rule) { return rule.fault == Fault::kDelay; });
  if (delays && options_.callbacks == TransferLedger::Callbacks::kOwnThread && &clock_ == &steady_clock()) {
    timer_thread_ = start_own_thread("cairn-fault", [this] { wait_for_delays(); });
  }
}

FaultExecutor::~FaultExecutor() {
  ledger_.close();
  std::vector<TransferId> inside;
  {
    const MutexLock lock(mutex_);
    ending_ = true;
    timer_.notify_all();
    for (const InFlightPtr& in_flight : in_flight_) {
      in_flight->is_cancelled = true;
      if (in_flight->is_known) {
        inside.push_back(in_flight->inside);
      }
    }
    for (const std::vector<Part>* parts : {&hung_, &lost_}) {
      for (const Part& part : *parts) {
        part.active->fail(part.blocks.front(), str_cat("injected: ", to_string(part.fault)));
      }
    }
    for (const Part& part : ready_) {
      for (const std::uint32_t block : part.begun ? part.blocks : std::vector<std::uint32_t>()) {
        part.active->pass_on(block, {.state = BlockState::kCancelled}, "the executor ended first");
      }
    }
    ready_.clear();
    hung_.clear();
    lost_.clear();
    delayed_.clear();
  }
  for (const TransferId each : inside) {
    inside_->cancel(each);
  }
  if (timer_thread_.joinable()) {
    timer_thread_.join();
  }
  if (options_.callbacks == TransferLedger::Callbacks::kOnRequest) {
    inside_.reset();  // there is no thread that could end what is inside while the ledger waits
  }
}

Result<TransferId> FaultExecutor::submit(Transfer&& transfer) {
  if (transfer.plan != nullptr && !inside_->can_move(*transfer.plan)) {
    return fail(ErrorCode::kInvalidArgument,
                str_cat("the plan moves blocks from ", to_string(transfer.plan->source().kind()), " to ",
                        to_string(transfer.plan->destination().kind()),
                        " memory, which this executor does not: ", inside_->describe()));
  }
  Result<TransferId> id = ledger_.accept(std::move(transfer));
  if (id.has_value()) {
    {
      const MutexLock lock(mutex_);
      while (const std::shared_ptr<ActiveTransfer> active = ledger_.try_take()) {
        assign_faults(active);
      }
    }
    send();
  }
  return id;
}

void FaultExecutor::cancel(TransferId transfer) {
  ledger_.cancel(transfer);
  std::vector<TransferId> inside;
  {
    const MutexLock lock(mutex_);
    for (const InFlightPtr& in_flight : in_flight_) {
      if (in_flight->part.active->id() == transfer) {
        in_flight->is_cancelled = true;
        if (in_flight->is_known) {
          inside.push_back(in_flight->inside);
        }
      }
    }
    // Blocks that found no room inside have not begun, as far as callers can see; blocks that hung and were released
    // have.
    for (Part& part : ready_) {
      if (part.active->id() == transfer && part.begun && part.fault != Fault::kHang) {
        for (const std::uint32_t block : part.blocks) {
          part.active->pass_on(block, {.state = BlockState::kCancelled}, "it was taken back before its copy began");
        }
        part.blocks.clear();
      }
    }
    std::erase_if(ready_, [](const Part& part) { return part.blocks.empty(); });
  }
  for (const TransferId each : inside) {
    inside_->cancel(each);
  }
}

void FaultExecutor::check_deadlines() {
  ledger_.check_deadlines();
  inside_->check_deadlines();
  wake_delayed();
}

std::string FaultExecutor::describe() const {
  return str_cat("faults by ", options_.rules.size(), options_.rules.size() == 1 ? " rule" : " rules", " and seed ",
                 options_.seed, " around ", inside_->describe());
}

void FaultExecutor::release() {
  {
    const MutexLock lock(mutex_);
    std::move(hung_.begin(), hung_.end(), std::back_inserter(ready_));
    hung_.clear();
  }
  send();
}

Fault FaultExecutor::fault_of(std::uint64_t block_number) const {
  for (std::size_t i = 0; i < options_.rules.size(); ++i) {
    const FaultRule& rule = options_.rules[i];
    const bool by_number = rule.at > 0 && block_number >= rule.at &&
                           (block_number == rule.at || (rule.every > 0 && (block_number - rule.at) % rule.every == 0));
    constexpr double kDraws = 9007199254740992.0;  // 2^53: what a double tells apart
    if (by_number || static_cast<double>(draw(options_.seed, block_number, i) >> 11) < rule.chance * kDraws) {
      return rule.fault;
    }
  }
  return Fault::kNone;
}

std::uint64_t FaultExecutor::struck(Fault fault) const {
  const MutexLock lock(mutex_);
  const auto found = struck_.find(fault);
  return found == struck_.end() ? 0 : found->second;
}

void FaultExecutor::assign_faults(const std::shared_ptr<ActiveTransfer>& active) {
  Part sound{.active = active, .number = next_number_};
  for (std::uint32_t block = 0; block < active->transfer().blocks.size(); ++block) {
    const std::uint64_t number = next_number_++;
    if (const Fault fault = fault_of(number); fault != Fault::kNone) {
      ++struck_[fault];
      strike({.active = active, .blocks = {block}, .fault = fault, .number = number});
    } else {
      sound.blocks.push_back(block);
    }
  }
  if (!sound.blocks.empty()) {
    ready_.push_back(std::move(sound));
  }
}

void FaultExecutor::strike(Part&& part) {
  switch (part.fault) {
    case Fault::kDelay:
      delayed_.emplace(clock_.now() + options_.delay, std::move(part));
      timer_.notify_all();
      return;
    case Fault::kFail:
      if (part.active->begin(part.blocks.front())) {
        part.active->fail(part.blocks.front(), "injected: fail");
      }
      return;
    case Fault::kHang:
    case Fault::kLose:
      if (part.active->begin(part.blocks.front())) {
        part.begun = true;
        (part.fault == Fault::kHang ? hung_ : lost_).push_back(std::move(part));
      }
      return;
    default:
      ready_.push_back(std::move(part));
  }
}

void FaultExecutor::wake_delayed() {
  {
    const MutexLock lock(mutex_);
    const auto end = delayed_.upper_bound(clock_.now());
    for (auto next = delayed_.begin(); next != end; next = delayed_.erase(next)) {
      ready_.push_back(std::move(next->second));
    }
  }
  send();
}

void FaultExecutor::wait_for_delays() {
  while (true) {
    wake_delayed();
    const MutexLock lock(mutex_);
    if (ending_) {
      return;
    }
    if (delayed_.empty()) {
      timer_.wait(mutex_);
    } else {
      timer_.wait_until(mutex_, std::chrono::steady_clock::time_point(delayed_.begin()->first));
    }
  }
}

FaultExecutor::InFlightPtr FaultExecutor::next_in_flight() {
  while (!ready_.empty() && !ending_) {
    Part part = std::move(ready_.front());
    ready_.pop_front();
    if (!part.begun) {
      std::erase_if(part.blocks, [&](std::uint32_t block) { return !part.active->begin(block); });
      part.begun = true;
    }
    if (!part.blocks.empty()) {
      return in_flight_.emplace_back(std::make_shared<InFlight>(InFlight{.part = std::move(part)}));
    }
  }
  return nullptr;
}

void FaultExecutor::send() {
  while (true) {
    InFlightPtr in_flight;
    {
      const MutexLock lock(mutex_);
      in_flight = next_in_flight();
    }
    if (in_flight == nullptr) {
      return;
    }
    Transfer transfer = transfer_for(in_flight);
    if (transfer.plan == nullptr) {  // a short copy of nothing
      in_flight->part.active->fail(in_flight->part.blocks.front(), "injected: short, nothing of it was copied");
      const MutexLock lock(mutex_);
      in_flight_.remove(in_flight);
      continue;
    }
    const Result<TransferId> id = inside_->submit(std::move(transfer));
    if (id.has_value()) {
      bool is_cancelled = false;
      {
        const MutexLock lock(mutex_);
        in_flight->inside = *id;
        in_flight->is_known = true;
        is_cancelled = in_flight->is_cancelled;
      }
      if (is_cancelled) {
        inside_->cancel(*id);
      }
      continue;
    }
    if (id.error().code != ErrorCode::kExhausted) {
      for (const std::uint32_t block : in_flight->part.blocks) {
        in_flight->part.active->fail(block, id.error().message);
      }
      const MutexLock lock(mutex_);
      in_flight_.remove(in_flight);
      continue;
    }
    const MutexLock lock(mutex_);
    in_flight_.remove(in_flight);
    if (in_flight->is_cancelled) {
      for (const std::uint32_t block : in_flight->part.blocks) {
        in_flight->part.active->pass_on(block, {.state = BlockState::kCancelled},
                                        "it was taken back before its copy began");
      }
    } else {
      ready_.push_front(std::move(in_flight->part));
    }
    if (!in_flight_.empty()) {
      return;  // the next one to settle sends again
    }
  }
}

Transfer FaultExecutor::transfer_for(const InFlightPtr& in_flight) {
  const Part& part = in_flight->part;
  const Transfer& whole = part.active->transfer();
  Transfer transfer{.plan = whole.plan, .verify = whole.verify, .deadline = whole.deadline};
  for (const std::uint32_t block : part.blocks) {
    transfer.blocks.push_back(whole.blocks[block]);
  }
  if (part.fault == Fault::kHang) {
    transfer.deadline = TimePoint::max();  // it is late by nature
  } else if (part.fault == Fault::kShort) {
    transfer.plan = half_of(whole.plan);
    transfer.verify = Verify::kOff;
  } else if (part.fault == Fault::kCorruptInFlight && whole.verify == Verify::kCheck) {
    transfer.verify = Verify::kMake;
  }
  transfer.done = [this, in_flight](TransferOutcome&& outcome) { on_done(*in_flight, outcome); };
  transfer.settled = [this, in_flight] {
    for (const std::uint32_t block : in_flight->expired) {
      in_flight->part.active->pass_on(block, {.state = BlockState::kExpired}, "the deadline passed inside");
    }
    {
      const MutexLock lock(mutex_);
      in_flight_.remove(in_flight);
    }
    send();
  };
  return transfer;
}

void FaultExecutor::on_done(InFlight& in_flight, const TransferOutcome& outcome) {
  bool is_reported = false;  // the error is the first one's
  for (std::size_t i = 0; i < in_flight.part.blocks.size(); ++i) {
    const BlockOutcome& block = outcome.blocks[i];
    const bool first = block.state != BlockState::kDone && !is_reported;
    is_reported = is_reported || first;
    if (block.state == BlockState::kExpired) {
      in_flight.expired.push_back(in_flight.part.blocks[i]);
    } else {
      tell(in_flight, in_flight.part.blocks[i], block,
           first ? outcome.error : str_cat("inside: ", to_string(block.state)));
    }
  }
}

void FaultExecutor::tell(InFlight& in_flight, std::uint32_t block, const BlockOutcome& outcome,
                         const std::string& error) {
  const Part& part = in_flight.part;
  ActiveTransfer& active = *part.active;
  const bool corrupts = part.fault == Fault::kCorrupt || part.fault == Fault::kCorruptInFlight;
  if (outcome.state != BlockState::kDone || !(corrupts || part.fault == Fault::kShort)) {
    active.pass_on(block, outcome, error);
    return;
  }
  if (part.fault == Fault::kShort) {
    active.fail(block, "injected: short, half of it was copied");
    return;
  }
  if (Status flipped = corrupt(part); !flipped) {
    active.fail(block, flipped.error().message);
  } else if (part.fault == Fault::kCorrupt) {
    active.pass_on(block, outcome, error);
  } else {
    // The sums of any other bytes.
    active.finish(block, {.products = outcome.sums.products + draw(options_.seed, part.number, 1'000),
                          .words = outcome.sums.words + static_cast<std::uint64_t>(kFlippedBit)});
  }
}

Status FaultExecutor::corrupt(const Part& part) const {
  const Transfer& transfer = part.active->transfer();
  const std::uint32_t block = transfer.blocks[part.blocks.front()].pair.destination;
  std::uint64_t use = 2'000;
  const auto below = [&](std::uint64_t bound) { return draw(options_.seed, part.number, use++) % bound; };
  const CopyPlan::Box& box = transfer.plan->boxes()[below(transfer.plan->boxes().size())];
  std::uint64_t offset = box.destination_offset + block * box.destination_block_step;
  for (const CopyPlan::Level& level : box.levels) {
    offset += below(level.count) * level.destination_step;
  }
  offset += below(transfer.plan->row_bytes());
  const Region& region = *transfer.plan->destination().regions()[box.destination_region];
  return options_.flip ? options_.flip(region, offset) : flip_bit(region, offset);
}

}  // namespace cairn
