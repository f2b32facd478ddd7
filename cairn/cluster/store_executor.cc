#include "cairn/cluster/store_executor.h"

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

#include "cairn/base/str_cat.h"
#include "cairn/cluster/store_label.h"
#include "cairn/transfer/row_sums.h"

namespace cairn {

namespace {

bool is_in_store(const BlockLayout& layout) {
  return layout.regions().size() == 1 && layout.regions().front()->is_elsewhere() &&
         layout.kind() == MemoryKind::kSystem;
}

// Whether a block lies in host memory as it does in the store: one contiguous range.
bool is_one_range(const BlockLayout& host, const BlockLayout& store) {
  if (host.regions().size() != 1 || !host.regions().front()->is_host() || host.shape() != store.shape()) {
    return false;
  }
  const auto same = [&](std::size_t layer) {
    const LayerPlace& here = host.layers()[layer];
    const LayerPlace& there = store.layers()[layer];
    return here.offset - host.layers()[0].offset == there.offset - store.layers()[0].offset &&
           here.kv_step == there.kv_step && here.token_step == there.token_step && here.head_step == there.head_step;
  };
  for (std::size_t layer = 0; layer < host.layers().size(); ++layer) {
    if (!same(layer)) {
      return false;
    }
  }
  return true;
}

std::span<std::byte> bytes_of(const BlockLayout& layout, std::uint32_t block) {
  const BlockLayout::Address address = layout.address(block, 0, 0, 0, 0);
  return {layout.regions()[address.region]->base() + address.offset, layout.shape().block_bytes()};
}

}  // namespace

StoreExecutor::StoreExecutor(const Clock& clock, BlockStore& store, RemoteSpace& space, const Options& options)
    : store_(store),
      space_(space),
      ledger_(clock, std::max<std::size_t>(options.limit, 1)),
      threads_(options.threads) {}

StoreExecutor::~StoreExecutor() { ledger_.close(); }

bool StoreExecutor::can_move(const CopyPlan& plan) const {
  return plan.is_whole() && ((is_in_store(plan.source()) && is_one_range(plan.destination(), plan.source())) ||
                             (is_in_store(plan.destination()) && is_one_range(plan.source(), plan.destination())));
}

std::string StoreExecutor::describe() const { return store_.describe(); }

Result<TransferId> StoreExecutor::submit(Transfer&& transfer) {
  if (transfer.plan != nullptr && !can_move(*transfer.plan)) {
    return fail(ErrorCode::kInvalidArgument,
                "the plan does not move whole blocks between contiguous host memory and a store");
  }
  const std::uint64_t changes = space_.changes();
  // After the number was read: a fence that comes later changes it, and then nothing of the transfer is stored.
  if (transfer.is_current && !transfer.is_current()) {
    return fail(ErrorCode::kCancelled, "the cache was reset before the transfer began");
  }
  TransferId id{};
  {
    const MutexLock lock(mutex_);
    CAIRN_TRY_ASSIGN(id, ledger_.accept(std::move(transfer)));
    changes_.emplace(id, changes);
  }
  threads_.post([this] { work(); });
  return id;
}

void StoreExecutor::work() {
  ActivePtr transfer;
  std::uint64_t changes = 0;
  {
    const MutexLock lock(mutex_);
    transfer = ledger_.try_take();
    if (transfer == nullptr) {
      return;  // it was cancelled or has expired
    }
    const auto found = changes_.find(transfer->id());
    changes = found->second;
    changes_.erase(changes_.begin(), std::next(found));  // and those that ended before their turn
  }
  space_.resolve(changes, [this, transfer, changes](const std::optional<std::string>& prefix) {
    threads_.post(
        [this, transfer, prefix, is_changed = space_.changes() != changes] { begin(transfer, prefix, is_changed); });
  });
}

void StoreExecutor::begin(const ActivePtr& transfer, const std::optional<std::string>& prefix, bool is_changed) {
  if (!prefix) {
    std::string why = is_changed ? "the cache was reset before the transfer began" : space_.error();
    if (why.empty()) {
      why = str_cat(describe(), " has not answered");
    }
    const auto blocks = static_cast<std::uint32_t>(transfer->transfer().blocks.size());
    for (std::uint32_t block = 0; block < blocks; ++block) {
      if (transfer->begin(block)) {
        transfer->pass_on(block, {.state = is_changed ? BlockState::kCancelled : BlockState::kFailed}, why);
      }
    }
  } else if (is_in_store(transfer->transfer().plan->destination())) {
    put(transfer, *prefix);
  } else {
    get(transfer, *prefix);
  }
}

void StoreExecutor::put(const ActivePtr& transfer, const std::string& prefix) {
  const Transfer& of = transfer->transfer();
  const BlockLayout& source = of.plan->source();
  StoreRequest request{.operation = StoreOperation::kPut, .deadline = of.deadline};
  std::vector<Begun> blocks;
  for (std::uint32_t block = 0; block < of.blocks.size(); ++block) {
    if (!transfer->begin(block)) {
      continue;
    }
    const TransferBlock& each = of.blocks[block];
    const BlockSums sums = sum_block(*of.plan, PlanSide::kSource, each.pair.source);
    const Checksum checksum = finish(sums, source.shape().block_bytes(), each.tag);
    if (each.expected != kNoChecksum && each.expected != checksum) {
      transfer->pass_on(block, {.state = BlockState::kMismatch, .checksum = checksum, .sums = sums},
                        "host memory has other bytes than were stored; they were not sent");
      continue;
    }
    const StoreLabel label{
        .block_bytes = source.shape().block_bytes(), .tag = each.tag, .checksum = checksum, .tokens_hash = each.note};
    request.items.push_back(
        {.key = store_key(prefix, each.tag), .label = label.encode(), .body = bytes_of(source, each.pair.source)});
    blocks.push_back({block, sums});
  }
  send(transfer, std::move(request), std::move(blocks));
}

void StoreExecutor::get(const ActivePtr& transfer, const std::string& prefix) {
  const Transfer& of = transfer->transfer();
  StoreRequest request{.operation = StoreOperation::kGet, .deadline = of.deadline};
  std::vector<Begun> blocks;
  for (std::uint32_t block = 0; block < of.blocks.size(); ++block) {
    if (transfer->begin(block)) {
      const TransferBlock& each = of.blocks[block];
      request.items.push_back(
          {.key = store_key(prefix, each.tag), .body = bytes_of(of.plan->destination(), each.pair.destination)});
      blocks.push_back({block});
    }
  }
  send(transfer, std::move(request), std::move(blocks));
}

void StoreExecutor::send(const ActivePtr& transfer, StoreRequest&& request, std::vector<Begun> blocks) {
  if (blocks.empty()) {
    return;
  }
  const StoreOperation operation = request.operation;
  request.done = [this, transfer, operation, blocks](std::size_t item, StoreOutcome&& outcome) {
    answered(transfer, operation, blocks[item], std::move(outcome));
  };
  if (const Status submitted = store_.submit(std::move(request)); !submitted) {
    for (const Begun& each : blocks) {
      transfer->fail(each.block, submitted.error().message);
    }
  }
}

void StoreExecutor::answered(const ActivePtr& transfer, StoreOperation operation, const Begun& begun,
                             StoreOutcome&& outcome) {
  const std::uint32_t block = begun.block;
  switch (outcome.state) {
    case StoreState::kDone:
      if (operation == StoreOperation::kPut) {
        transfer->finish(block, begun.sums);
      } else {
        // Not on the thread of the store, which has other answers to read.
        threads_.post([this, transfer, block, outcome = std::move(outcome)] { verify(transfer, block, outcome); });
      }
      return;
    case StoreState::kAbsent:
      transfer->pass_on(block, {.state = BlockState::kGone}, str_cat(describe(), " no longer has the block"));
      return;
    case StoreState::kCorrupt:
      transfer->pass_on(block, {.state = BlockState::kMismatch}, outcome.error);
      return;
    case StoreState::kExpired:
      transfer->pass_on(block, {.state = BlockState::kExpired}, outcome.error);
      return;
    case StoreState::kUnavailable:
    case StoreState::kRefused:
      break;
  }
  transfer->fail(block, outcome.error);
}

void StoreExecutor::verify(const ActivePtr& transfer, std::uint32_t block, const StoreOutcome& outcome) {
  const Transfer& of = transfer->transfer();
  const TransferBlock& each = of.blocks[block];
  const std::uint64_t block_bytes = of.plan->source().shape().block_bytes();
  const BlockSums sums = sum_block(*of.plan, PlanSide::kDestination, each.pair.destination);
  const Checksum checksum = finish(sums, block_bytes, each.tag);
  const Result<StoreLabel> label = StoreLabel::decode(outcome.label);
  const auto wrong = [&](const std::string& why) {
    transfer->pass_on(block, {.state = BlockState::kMismatch, .checksum = checksum, .sums = sums},
                      str_cat(describe(), ": ", why));
  };
  if (!label) {
    wrong(label.error().message);
  } else if (label->tag != each.tag || label->block_bytes != block_bytes) {
    wrong("the value is another block than was asked for");
  } else if (label->checksum != checksum) {
    wrong("the block has other bytes than it was stored with");
  } else {
    transfer->finish(block, sums);
  }
}

}  // namespace cairn
