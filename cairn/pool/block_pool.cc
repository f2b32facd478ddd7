#include "cairn/pool/block_pool.h"

#include <utility>

#include "cairn/pool/slot_table.h"

namespace cairn {

Result<std::unique_ptr<BlockPool>> BlockPool::create(const BlockPoolOptions& options) {
  Result<std::unique_ptr<SlotTable>> table = SlotTable::create(options);
  if (!table) {
    return Unexpected(std::move(table).error());
  }
  return std::unique_ptr<BlockPool>(new BlockPool(*std::move(table)));
}

BlockPool::BlockPool(std::unique_ptr<SlotTable> table) : table_(std::move(table)) {}

BlockPool::~BlockPool() = default;

Result<MutableBlocks> BlockPool::allocate(std::uint32_t count, TenantId tenant) {
  Result<internal::Run> run = table_->allocate(count, tenant, nullptr);
  if (!run) {
    return Unexpected(std::move(run).error());
  }
  return MutableBlocks(*std::move(run));
}

Result<MutableBlocks> BlockPool::allocate(std::uint32_t count, TenantId tenant, std::vector<BlockKey>& evicted) {
  Result<internal::Run> run = table_->allocate(count, tenant, &evicted);
  if (!run) {
    return Unexpected(std::move(run).error());
  }
  return MutableBlocks(*std::move(run));
}

ImmutableBlocks BlockPool::match_prefix(std::span<const BlockKey> keys) {
  return ImmutableBlocks(table_->match_prefix(keys));
}

ScatteredMatch BlockPool::match_scattered(std::span<const BlockKey> keys) {
  ScatteredMatch match;
  match.blocks = ImmutableBlocks(table_->match_scattered(keys, &match.position));
  return match;
}

ImmutableBlocks BlockPool::scan(std::span<const BlockKey> keys) {
  return ImmutableBlocks(table_->match_scattered(keys, nullptr));
}

ImmutableBlocks BlockPool::claim_victims(std::uint32_t count) { return ImmutableBlocks(table_->claim_victims(count)); }

std::uint32_t BlockPool::wanted_victims() const { return table_->wanted_victims(); }

void BlockPool::set_low_water(std::uint32_t blocks) { table_->set_low_water(blocks); }

std::uint32_t BlockPool::least_low_water() const { return table_->options().low_water; }

std::uint32_t BlockPool::take_largest_allocation() { return table_->take_largest_allocation(); }

BorrowedBlocks BlockPool::borrow(std::span<const BlockKey> keys) { return BorrowedBlocks(table_->borrow(keys)); }

std::vector<std::optional<PeekedBlock>> BlockPool::peek(std::span<const BlockKey> keys) const {
  return table_->peek(keys);
}

bool BlockPool::contains_parent_of(const BlockKey& key) const { return table_->contains_parent_of(key); }

PinnedBlocks BlockPool::hold(std::span<const BlockKey> keys) { return PinnedBlocks(table_->hold(keys)); }

bool BlockPool::contains(const BlockKey& key) const { return table_->count_prefix({&key, 1}) == 1; }

std::uint32_t BlockPool::count_prefix(std::span<const BlockKey> keys) const { return table_->count_prefix(keys); }

Result<std::uint32_t> BlockPool::hint(std::span<const BlockKey> keys, const RetentionHint& hint) {
  return table_->hint(keys, hint);
}

ResetOutcome BlockPool::reset(std::span<const BlockKey> keys) { return table_->reset(keys); }

std::uint32_t BlockPool::reset_inactive() { return table_->reset_inactive(); }

std::uint32_t BlockPool::discard(std::span<const BlockKey> keys) { return table_->discard(keys); }

PoolFence::PoolFence(std::unique_ptr<internal::FreshTables> fresh) : fresh_(std::move(fresh)) {}
PoolFence::PoolFence(PoolFence&&) noexcept = default;
PoolFence& PoolFence::operator=(PoolFence&&) noexcept = default;
PoolFence::~PoolFence() = default;

Result<PoolFence> BlockPool::plan_fence() const {
  Result<internal::FreshTables> fresh = table_->make_fresh_tables();
  if (!fresh) {
    return Unexpected(std::move(fresh).error());
  }
  return PoolFence(std::make_unique<internal::FreshTables>(*std::move(fresh)));
}

PoolFenceOutcome BlockPool::raise_fence(PoolFence fence) { return table_->raise_fence(*fence.fresh_); }

void BlockPool::lower_fence() { table_->lower_fence(); }

bool BlockPool::reclaim(std::uint32_t count) { return table_->reclaim(count); }

Result<void> BlockPool::restore(std::span<const RestoredBlock> blocks) { return table_->restore(blocks); }

std::uint32_t BlockPool::list_resident(std::uint32_t first, std::uint32_t count,
                                       std::vector<ResidentBlock>& out) const {
  return table_->list_resident(first, count, out);
}

std::uint32_t BlockPool::list_blocks(std::uint32_t first, std::uint32_t count, std::size_t most,
                                     std::vector<ListedBlock>& out) const {
  return table_->list_blocks(first, count, most, out);
}

PoolCounts BlockPool::counts() const { return table_->counts(); }
PoolStats BlockPool::stats() const { return table_->stats(); }
Result<TenantUsage> BlockPool::usage(TenantId tenant) const { return table_->usage(tenant); }
std::uint32_t BlockPool::capacity() const { return table_->options().capacity; }
std::uint32_t BlockPool::block_size() const { return table_->options().block_size; }
const KeySeed& BlockPool::seed() const { return table_->seed(); }
CacheLevel BlockPool::tier() const { return table_->options().tier; }
std::size_t BlockPool::bytes() const { return table_->bytes(); }
void BlockPool::check_invariants() const { table_->check_invariants(); }

}  // namespace cairn
