#include "cairn/sim/offload_engine.h"

#include <algorithm>
#include <iterator>

#include "cairn/base/check.h"
#include "cairn/base/str_cat.h"

namespace cairn::sim {
namespace {

Status check(const OffloadOptions& options, const OffloadEngine::Environment& environment) {
  if (options.tiers.empty()) {
    return fail(ErrorCode::kInvalidArgument, "an offload engine without tiers moves nothing; give at least one tier");
  }
  if (options.batch_blocks == 0 || options.max_copies == 0) {
    return fail(ErrorCode::kInvalidArgument, str_cat("batch_blocks ", options.batch_blocks, " and max_copies ",
                                                     options.max_copies, " move nothing; give at least 1 of each"));
  }
  const std::uint64_t most = std::max(environment.max_capacity, options.batch_blocks);
  if (options.block_bytes > Link::kMaxTransferBytes / most) {
    return fail(ErrorCode::kInvalidArgument,
                str_cat(most, " blocks of ", options.block_bytes, " bytes in one transfer exceed ",
                        Link::kMaxTransferBytes, " bytes; give smaller or fewer blocks"));
  }
  CacheLevel above = CacheLevel::kG2;
  for (const OffloadTierOptions& tier : options.tiers) {
    if (tier.level < above) {
      return fail(ErrorCode::kInvalidArgument,
                  str_cat("a tier of level ", to_string(tier.level), " cannot be below one of level ", to_string(above),
                          "; give tiers from G2 down, the nearest first"));
    }
    above = tier.level;
    if (!environment.network->has(tier.down) || !environment.network->has(tier.up)) {
      return fail(ErrorCode::kNotFound, str_cat("a link of the tier of level ", to_string(tier.level),
                                                " is not in the network; add it there first"));
    }
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<OffloadEngine>> OffloadEngine::create(const OffloadOptions& options,
                                                             const Environment& environment) {
  CAIRN_TRY(check(options, environment));
  std::unique_ptr<OffloadEngine> engine(new OffloadEngine(options, environment));
  for (const OffloadTierOptions& tier : options.tiers) {
    CAIRN_TRY_ASSIGN(std::unique_ptr<SimTier> created, SimTier::create({.capacity = tier.capacity,
                                                                        .block_size = environment.block_size,
                                                                        .tier = tier.level,
                                                                        .policy = tier.eviction}));
    engine->tiers_.push_back({.tier = std::move(created), .down = tier.down, .up = tier.up});
  }
  return engine;
}

OffloadEngine::OffloadEngine(const OffloadOptions& options, const Environment& environment)
    : options_(options), network_(environment.network), events_(environment.events) {}

OffloadEngine::~OffloadEngine() { network_->leave(*this); }

// Down.

void OffloadEngine::offload(std::vector<BlockRecord> blocks, MutableBlocks sources) {
  std::vector<BlockRecord> needed = take_needed(0, std::move(blocks));
  if (needed.empty()) {
    return;
  }
  const HoldId hold{next_id_++};
  Hold& held = holds_.emplace(hold, Hold{std::move(sources).quarantine(), 0}).first->second;
  held.copies = queue_copies(0, std::move(needed), hold);
  begin_pending(0);
}

std::vector<BlockRecord> OffloadEngine::take_needed(TierIndex tier, std::vector<BlockRecord> blocks) {
  SimTier& below = *tiers_[tier].tier;
  tiers_[tier].stats.skipped += std::erase_if(blocks, [&](const BlockRecord& block) {
    if (decide_offload(below.presence(block.key)) != OffloadVerdict::kCopy) {
      return true;
    }
    below.expect(block.key);
    return false;
  });
  return blocks;
}

std::uint32_t OffloadEngine::queue_copies(TierIndex tier, std::vector<BlockRecord> blocks, const Waiter& waiter) {
  std::uint32_t batches = 0;
  for (std::size_t first = 0; first < blocks.size(); first += options_.batch_blocks) {
    const std::size_t count = std::min<std::size_t>(options_.batch_blocks, blocks.size() - first);
    const auto begin = std::move_iterator(blocks.begin() + static_cast<std::ptrdiff_t>(first));
    const CopyId id{next_id_++};
    copies_.emplace(
        id, Copy{.tier = tier, .blocks = {begin, begin + static_cast<std::ptrdiff_t>(count)}, .waiter = waiter});
    tiers_[tier].pending.push_back(id);
    ++batches;
  }
  return batches;
}

void OffloadEngine::begin_pending(TierIndex tier) {
  std::deque<CopyId>& pending = tiers_[tier].pending;
  while (!pending.empty() && tiers_[tier].in_flight < options_.max_copies) {
    const CopyId next = pending.front();
    pending.pop_front();
    begin_copy(next);
  }
}

void OffloadEngine::begin_copy(CopyId id) {
  Copy& copy = copies_.at(id);
  Tier& into = tiers_[copy.tier];
  ++into.in_flight;
  if (copy.blocks.size() > into.tier->counts().available()) {
    for (const BlockRecord& block : copy.blocks) {
      into.tier->stop_expecting(block.key);
    }
    into.stats.dropped += copy.blocks.size();
    copy.blocks.clear();
    end_copy(id);
    return;
  }
  std::vector<BlockRecord> evicted;
  copy.room.emplace(into.tier->make_room(copy.blocks.size(), evicted));
  into.stats.evicted += evicted.size();
  for (const BlockRecord& block : evicted) {
    publish_removed(copy.tier, block);
  }
  // One extra wait, so that the transfer does not start before all copies that it waits for are queued.
  copy.waits_for = 1;
  if (const TierIndex below = copy.tier + 1; below < tiers_.size()) {
    copy.waits_for += queue_copies(below, take_needed(below, std::move(evicted)), id);
    begin_pending(below);
  }
  count_down(id);
}

void OffloadEngine::count_down(CopyId id) {
  Copy& copy = copies_.at(id);
  if (--copy.waits_for == 0) {
    start_transfer(tiers_[copy.tier].down, copy.blocks.size(), id);
  }
}

void OffloadEngine::end_copy(CopyId id) {
  auto ended = copies_.extract(id);
  Copy& copy = ended.mapped();
  Tier& into = tiers_[copy.tier];
  if (copy.room) {
    into.tier->store(*std::move(copy.room), copy.blocks);
    into.stats.copied += copy.blocks.size();
    for (const BlockRecord& block : copy.blocks) {
      publish_stored(copy.tier, block);
    }
  }
  --into.in_flight;
  std::visit([this](auto waiter) { count_down(waiter); }, copy.waiter);
}

void OffloadEngine::count_down(HoldId id) {
  const auto hold = holds_.find(id);
  if (--hold->second.copies == 0) {
    std::move(hold->second.blocks).release_proven_finished();
    holds_.erase(hold);
  }
}

// Up.

LoadPlan OffloadEngine::find(std::span<const BlockKey> keys) const {
  return plan_load(keys.size(), [&](std::size_t i) -> std::optional<TierIndex> {
    for (TierIndex tier = 0; tier < tiers_.size(); ++tier) {
      if (tiers_[tier].tier->contains(keys[i])) {
        return tier;
      }
    }
    return std::nullopt;
  });
}

LoadId OffloadEngine::open_load(std::span<const BlockKey> keys, const LoadPlan& plan) {
  Load load;
  std::vector<BlockKey> of_tier;
  for (TierIndex tier = 0; tier < tiers_.size(); ++tier) {
    of_tier.clear();
    for (std::size_t i = 0; i < plan.blocks(); ++i) {
      if (plan.source[i] == tier) {
        of_tier.push_back(keys[i]);
      }
    }
    if (!of_tier.empty()) {
      load.parts.push_back({.from = tier, .at = tier, .blocks = tiers_[tier].tier->pin(of_tier)});
    }
  }
  load.parts_left = static_cast<std::uint32_t>(load.parts.size());
  const LoadId id{next_id_++};
  loads_.emplace(id, std::move(load));
  return id;
}

void OffloadEngine::begin_load(LoadId load) {
  const std::size_t parts = loads_.at(load).parts.size();
  CAIRN_CHECK(parts > 0, "a load has blocks to load");
  for (std::size_t part = 0; part < parts; ++part) {
    start_part({load, part});
  }
}

void OffloadEngine::close_load(LoadId load) { loads_.erase(load); }

void OffloadEngine::start_part(const LoadPart& part) {
  const Part& starting = loads_.at(part.load).parts[part.part];
  start_transfer(tiers_[starting.at].up, starting.blocks.size(), part);
}

void OffloadEngine::part_arrived(const LoadPart& arrived) {
  const auto found = loads_.find(arrived.load);
  Load& load = found->second;
  if (Part& part = load.parts[arrived.part]; part.at > 0) {
    --part.at;
    start_part(arrived);
    return;
  }
  if (--load.parts_left > 0) {
    return;
  }
  for (const Part& part : load.parts) {
    tiers_[part.from].stats.loaded += part.blocks.size();
  }
  loads_.erase(found);
  finished_.push_back(arrived.load);
}

// Time.

void OffloadEngine::start_transfer(LinkId link, std::size_t blocks, const Cargo& cargo) {
  const TransferId transfer = network_->start(link, blocks * options_.block_bytes, *this);
  in_flight_.emplace(static_cast<std::uint64_t>(transfer), cargo);
}

void OffloadEngine::on_arrived(TransferId transfer) {
  const Cargo cargo = in_flight_.extract(static_cast<std::uint64_t>(transfer)).mapped();
  unseen_since_ = unseen_since_.value_or(now());
  if (const LoadPart* part = std::get_if<LoadPart>(&cargo)) {
    part_arrived(*part);
    return;
  }
  const CopyId copy = *std::get_if<CopyId>(&cargo);
  const TierIndex tier = copies_.at(copy).tier;
  end_copy(copy);
  begin_pending(tier);
}

void OffloadEngine::advance_to(TimePoint now) {
  network_->advance_to(now);
  unseen_since_.reset();
}

std::optional<TimePoint> OffloadEngine::next_event_time() const {
  std::optional<TimePoint> next = unseen_since_;
  for (const Tier& tier : tiers_) {
    for (const LinkId link : {tier.down, tier.up}) {
      const std::optional<TimePoint> arrival = network_->next_arrival_of(link, *this);
      next = next && (!arrival || *next < *arrival) ? next : arrival;
    }
  }
  return next;
}

// Events.

bool OffloadEngine::elsewhere_on_level(TierIndex tier, const BlockKey& key) const {
  return std::ranges::any_of(tiers_, [&](const Tier& other) {
    return &other != &tiers_[tier] && other.tier->level() == tiers_[tier].tier->level() && other.tier->contains(key);
  });
}

void OffloadEngine::publish_stored(TierIndex tier, const BlockRecord& block) {
  if (!events_->has_sink() || elsewhere_on_level(tier, block.key)) {
    return;
  }
  const KvStoredBlock stored{block.hash, block.tokens_hash};
  KvStored event{.parent = block.parent, .blocks = {&stored, 1}, .token_ids = std::nullopt};
  if (!block.token_ids.empty()) {
    event.token_ids = block.token_ids;
  }
  events_->stored(event, tiers_[tier].tier->level());
}

void OffloadEngine::publish_removed(TierIndex tier, const BlockRecord& block) {
  if (events_->has_sink() && !elsewhere_on_level(tier, block.key)) {
    events_->removed({&block.hash, 1}, tiers_[tier].tier->level());
  }
}

void OffloadEngine::check_invariants() const {
  for (TierIndex i = 0; i < tiers_.size(); ++i) {
    const Tier& tier = tiers_[i];
    tier.tier->check_invariants();
    std::size_t blocks = 0;
    std::size_t begun = 0;
    std::size_t room = 0;
    for (const auto& [id, copy] : copies_) {
      if (copy.tier == i) {
        blocks += copy.blocks.size();
        begun += copy.room ? 1 : 0;
        room += copy.room ? copy.room->size() : 0;
        CAIRN_CHECK(!copy.room || copy.room->size() == copy.blocks.size(), "a copy has room for exactly its blocks");
      }
    }
    CAIRN_CHECK(blocks == tier.tier->expected(), "a tier expects exactly the blocks that are being copied into it");
    CAIRN_CHECK(begun == tier.in_flight && begun <= options_.max_copies, "the copies in flight are counted");
    CAIRN_CHECK(tier.pending.empty() || begun == options_.max_copies,
                "a copy is pending only while max_copies are in flight");
    CAIRN_CHECK(tier.tier->counts().active >= room, "the blocks that copies write are active");
  }
  check_waiters();
  CAIRN_CHECK((copies_.empty() && loads_.empty()) == in_flight_.empty(),
              "a copy or load that waits, waits for a transfer in flight");
}

void OffloadEngine::check_waiters() const {
  std::map<Waiter, std::uint32_t> waits;
  for (const auto& [id, copy] : copies_) {
    ++waits[copy.waiter];
  }
  for (const auto& [id, copy] : copies_) {
    CAIRN_CHECK(copy.waits_for == waits[Waiter(id)], "a copy waits for exactly the copies that count it down");
  }
  for (const auto& [id, hold] : holds_) {
    CAIRN_CHECK(hold.copies > 0 && hold.copies == waits[Waiter(id)], "blocks are held while copies read them");
  }
}

}  // namespace cairn::sim
