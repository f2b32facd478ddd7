#include "cairn/offload/offload_edge.h"

#include <algorithm>
#include <utility>

#include "cairn/base/str_cat.h"
#include "cairn/offload/offload_impl.h"

namespace cairn {

std::string_view to_string(OffloadRefusal refusal) {
  constexpr std::array<std::string_view, kOffloadRefusals> kNames = {
      "too short",     "never seen twice", "would not last", "over budget", "low priority",
      "already below", "under way",        "shed",           "gone",        "no room",
      "tier out",      "failed",           "cancelled",      "no parent"};
  return kNames[static_cast<std::size_t>(refusal)];
}

Result<std::unique_ptr<OffloadEdge>> OffloadEdge::make(TierLink& link, BlockRegistry& registry,
                                                       const OffloadOptions& options, const Clock& clock,
                                                       std::function<void()> wake) {
  if (options.batch == 0 || options.in_flight == 0 || options.queue == 0) {
    return fail(ErrorCode::kInvalidArgument,
                str_cat("an edge of ", options.in_flight, " batches of ", options.batch, " blocks, with room for ",
                        options.queue, " that wait; each is at least 1"));
  }
  if (link.to().pool() == nullptr) {
    return fail(ErrorCode::kInvalidArgument,
                str_cat(to_string(link.to().level()), " has no pool; blocks move down to a tier that has one"));
  }
  Result<AdmissionFilter> filter = AdmissionFilter::create({.capacity = link.to().pool()->capacity(),
                                                            .least_uses = options.least_uses,
                                                            .least_blocks = options.least_blocks,
                                                            .least_chance = options.least_chance,
                                                            .bytes_per_day = options.bytes_per_day,
                                                            .block_bytes = link.to().block_bytes(),
                                                            .seed = link.to().pool()->seed()},
                                                           clock.now());
  if (!filter) {
    return Unexpected(std::move(filter).error());
  }
  return std::unique_ptr<OffloadEdge>(
      new OffloadEdge(std::make_unique<Impl>(link, registry, options, clock, std::move(wake), *std::move(filter))));
}

OffloadEdge::OffloadEdge(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
OffloadEdge::~OffloadEdge() = default;

void OffloadEdge::registered(std::span<const ResidentBlock> blocks) { impl_->registered(blocks); }
void OffloadEdge::used(std::span<const BlockKey> keys) { impl_->used(keys); }

Result<OffloadRequestId> OffloadEdge::offload(Request&& request) {
  if (!impl_->has_upper_pool()) {
    return fail(ErrorCode::kInvalidArgument, str_cat("the engine's own ", to_string(impl_->from().level()),
                                                     " has no pool; say in which blocks the blocks are"));
  }
  return impl_->offload({}, std::move(request));
}

Result<OffloadRequestId> OffloadEdge::offload(EngineBlocks&& blocks, Request&& request) {
  if (impl_->has_upper_pool()) {
    return fail(ErrorCode::kInvalidArgument,
                str_cat(to_string(impl_->from().level()), " has a pool; ask for its blocks by their keys"));
  }
  std::vector<BlockKey> keys;
  for (const BlockFacts& facts : blocks.facts) {
    keys.push_back(facts.block.key);
  }
  if (blocks.block_ids.size() != keys.size() || (!request.keys.empty() && request.keys != keys)) {
    return fail(ErrorCode::kInvalidArgument,
                str_cat(blocks.block_ids.size(), " blocks and ", keys.size(), " facts for ", request.keys.size(),
                        " keys; give one of each for each block"));
  }
  const std::uint32_t all = impl_->from().layout()->blocks();
  if (std::ranges::any_of(blocks.block_ids, [all](BlockId block_id) { return index_of(block_id) >= all; })) {
    return fail(ErrorCode::kOutOfRange, str_cat("a block beyond the ", all, " blocks of the engine's layout"));
  }
  if (std::ranges::any_of(blocks.facts,
                          [](const BlockFacts& facts) { return facts.priority > Retention::kMaxPriority; })) {
    return fail(ErrorCode::kInvalidArgument, str_cat("the highest priority of a block is ", Retention::kMaxPriority));
  }
  request.keys = std::move(keys);
  return impl_->offload(std::move(blocks), std::move(request));
}

void OffloadEdge::cancel(OffloadRequestId request) { impl_->cancel(request); }
void OffloadEdge::fence(std::uint64_t fences) { impl_->fence(fences); }
void OffloadEdge::pause() { impl_->pause(); }
void OffloadEdge::resume() { impl_->resume(); }
OffloadStatus OffloadEdge::status() const { return impl_->status(); }
bool OffloadEdge::pump() { return impl_->pump(); }
std::optional<TimePoint> OffloadEdge::next_time() const { return impl_->next_time(); }
bool OffloadEdge::is_idle() const { return impl_->is_idle(); }
void OffloadEdge::end() { impl_->end(); }
void OffloadEdge::end_now() { impl_->end_now(); }

}  // namespace cairn
