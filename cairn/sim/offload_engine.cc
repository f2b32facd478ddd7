#include "cairn/sim/offload_engine.h"

#include <algorithm>
#include <iterator>

#include "cairn/base/check.h"
#include "cairn/base/str_cat.h"

namespace cairn::sim {
namespace {

Status check(const OffloadOptions& options, const OffloadEngine::Surroundings& around) {
  if (options.tiers.empty()) {
    return fail(ErrorCode::kInvalidArgument, "an offload engine without tiers; give at least one");
  }
  if (options.batch_blocks == 0 || options.max_copies == 0) {
    return fail(ErrorCode::kInvalidArgument,
                str_cat("copies of ", options.batch_blocks, " blocks, ", options.max_copies,
                        " at once, move nothing; give at least 1 of each"));
  }
  const std::uint64_t most = std::max(around.max_capacity, options.batch_blocks);
  if (options.block_bytes > Link::kMaxTransferBytes / most) {
    return fail(ErrorCode::kInvalidArgument,
                str_cat("blocks of ", options.block_bytes, " bytes, ", most, " in one transfer, are more than ",
                        Link::kMaxTransferBytes, " bytes; give smaller ones, or fewer"));
  }
  CacheLevel above = CacheLevel::kG2;
  for (const OffloadTierOptions& tier : options.tiers) {
    if (tier.level < above) {
      return fail(ErrorCode::kInvalidArgument,
                  str_cat("a tier of level ", to_string(tier.level), " cannot stand below one of ", to_string(above),
                          "; give G2 and lower, the nearest first"));
    }
    above = tier.level;
    if (!around.network->has(tier.down) || !around.network->has(tier.up)) {
      return fail(ErrorCode::kNotFound, str_cat("a link of the tier of level ", to_string(tier.level),
                                                " is not in the network; add it there first"));
    }
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<OffloadEngine>> OffloadEngine::create(const OffloadOptions& options,
                                                             const Surroundings& surroundings) {
  if (Status checked = check(options, surroundings); !checked) {
    return Unexpected(checked.error());
  }
  std::unique_ptr<OffloadEngine> engine(new OffloadEngine(options, surroundings));
  for (const OffloadTierOptions& tier : options.tiers) {
    Result<std::unique_ptr<SimTier>> made = SimTier::create({.capacity = tier.capacity,
                                                             .block_size = surroundings.block_size,
                                                             .tier = tier.level,
                                                             .policy = tier.eviction});
    if (!made) {
      return Unexpected(std::move(made).error());
    }
    engine->tiers_.push_back({.tier = *std::move(made), .down = tier.down, .up = tier.up});
  }
  return engine;
}

OffloadEngine::OffloadEngine(const OffloadOptions& options, const Surroundings& surroundings)
    : options_(options), profile_(surroundings.profile), network_(surroundings.network), events_(surroundings.events) {}

OffloadEngine::~OffloadEngine() { network_->leave(*this); }

// Down.

bool OffloadEngine::needs_copy(const BlockKey& key) const {
  return decide_offload(tiers_[0].tier->presence(key)) == OffloadVerdict::kCopy;
}

void OffloadEngine::offload(std::vector<BlockRecord> blocks, MutableBlocks sources) {
  std::vector<BlockRecord> needed = take_needed(0, std::move(blocks));
  if (needed.empty()) {
    return;
  }
  if (profile_ == Profile::kSeed) {
    const HoldId hold{next_id_++};
    Hold& held = holds_.emplace(hold, Hold{std::move(sources).quarantine(), 0}).first->second;
    held.copies = queue_copies(0, std::move(needed), hold);
  } else {
    CAIRN_CHECK(needed.size() == sources.size(), "a block is kept for each block that is copied, and no other");
    for (std::size_t first = 0; first < needed.size(); first += options_.batch_blocks) {
      const std::size_t count = std::min<std::size_t>(options_.batch_blocks, needed.size() - first);
      const HoldId hold{next_id_++};
      holds_.emplace(hold, Hold{sources.take_front(static_cast<std::uint32_t>(count)).quarantine(), 1});
      const auto begin = std::move_iterator(needed.begin() + static_cast<std::ptrdiff_t>(first));
      queue_copy(0, {begin, begin + static_cast<std::ptrdiff_t>(count)}, hold);
    }
  }
  begin_waiting(0);
}

void OffloadEngine::offload_for(LoadId load, std::vector<BlockRecord> blocks) {
  loads_.at(load).waits_for += queue_copies(0, take_needed(0, std::move(blocks)), load);
  begin_waiting(0);
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
    queue_copy(tier, {begin, begin + static_cast<std::ptrdiff_t>(count)}, waiter);
    ++batches;
  }
  return batches;
}

void OffloadEngine::queue_copy(TierIndex tier, std::vector<BlockRecord> batch, const Waiter& waiter) {
  const CopyId id{next_id_++};
  copies_.emplace(id, Copy{.tier = tier, .blocks = std::move(batch), .waiter = waiter});
  tiers_[tier].waiting.push_back(id);
}

void OffloadEngine::begin_waiting(TierIndex tier) {
  std::deque<CopyId>& waiting = tiers_[tier].waiting;
  while (!waiting.empty() && tiers_[tier].under_way < options_.max_copies) {
    const CopyId next = waiting.front();
    waiting.pop_front();
    begin_copy(next);
  }
}

void OffloadEngine::begin_copy(CopyId id) {
  Copy& copy = copies_.at(id);
  Tier& into = tiers_[copy.tier];
  const std::size_t fitting = blocks_to_copy(profile_, copy.blocks.size(), into.tier->counts().available());
  for (std::size_t i = fitting; i < copy.blocks.size(); ++i) {
    into.tier->give_up(copy.blocks[i].key);
    ++into.stats.dropped;
  }
  copy.blocks.resize(fitting);
  ++into.under_way;
  if (fitting == 0) {
    end_copy(id);
    return;
  }
  std::vector<BlockRecord> evicted;
  copy.room.emplace(into.tier->make_room(fitting, evicted));
  into.stats.evicted += evicted.size();
  for (const BlockRecord& block : evicted) {
    publish_removed(copy.tier, block);
  }
  // Held back while it is not known for how many others it waits.
  copy.waits_for = 1;
  if (const TierIndex below = copy.tier + 1; below < tiers_.size()) {
    copy.waits_for += queue_copies(below, take_needed(below, std::move(evicted)), id);
    begin_waiting(below);
  }
  one_wait_less(id);
}

void OffloadEngine::one_wait_less(CopyId id) {
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
  --into.under_way;
  std::visit([this](auto waiter) { one_wait_less(waiter); }, copy.waiter);
}

void OffloadEngine::one_wait_less(HoldId id) {
  const auto hold = holds_.find(id);
  if (--hold->second.copies == 0) {
    std::move(hold->second.block_ids).release_proven_finished();
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
      load.legs.push_back({.from = tier, .at = tier, .blocks = tiers_[tier].tier->pin(of_tier)});
    }
  }
  load.legs_left = static_cast<std::uint32_t>(load.legs.size());
  const LoadId id{next_id_++};
  loads_.emplace(id, std::move(load));
  return id;
}

void OffloadEngine::begin_load(LoadId load) {
  CAIRN_CHECK(!loads_.at(load).legs.empty(), "a load has something to load");
  one_wait_less(load);
}

void OffloadEngine::close_load(LoadId load) { loads_.erase(load); }

void OffloadEngine::one_wait_less(LoadId id) {
  Load& load = loads_.at(id);
  if (--load.waits_for == 0) {
    for (std::size_t leg = 0; leg < load.legs.size(); ++leg) {
      move_leg(id, leg);
    }
  }
}

void OffloadEngine::move_leg(LoadId id, std::size_t leg) {
  const Leg& moving = loads_.at(id).legs[leg];
  start_transfer(tiers_[moving.at].up, moving.blocks.size(), MovingLeg{id, leg});
}

void OffloadEngine::leg_arrived(const MovingLeg& moved) {
  const auto found = loads_.find(moved.load);
  Load& load = found->second;
  if (Leg& leg = load.legs[moved.leg]; leg.at > 0) {
    --leg.at;
    move_leg(moved.load, moved.leg);
    return;
  }
  if (--load.legs_left > 0) {
    return;
  }
  for (const Leg& leg : load.legs) {
    tiers_[leg.from].stats.loaded += leg.blocks.size();
  }
  loads_.erase(found);
  finished_.push_back(moved.load);
}

// Time.

void OffloadEngine::start_transfer(LinkId link, std::size_t blocks, const Moving& moving) {
  const TransferId transfer = network_->start(link, blocks * options_.block_bytes, *this);
  moving_.emplace(static_cast<std::uint64_t>(transfer), moving);
}

void OffloadEngine::on_arrived(TransferId transfer) {
  const Moving moved = moving_.extract(static_cast<std::uint64_t>(transfer)).mapped();
  unseen_since_ = unseen_since_.value_or(now());
  if (const MovingLeg* leg = std::get_if<MovingLeg>(&moved)) {
    leg_arrived(*leg);
    return;
  }
  const CopyId copy = *std::get_if<CopyId>(&moved);
  const TierIndex tier = copies_.at(copy).tier;
  end_copy(copy);
  begin_waiting(tier);
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
  if (!events_->wanted() || elsewhere_on_level(tier, block.key)) {
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
  if (events_->wanted() && !elsewhere_on_level(tier, block.key)) {
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
        CAIRN_CHECK(!copy.room || copy.room->size() == copy.blocks.size(), "a copy has a block for each block");
      }
    }
    CAIRN_CHECK(blocks == tier.tier->expected(), "a tier expects exactly what is on its way there");
    CAIRN_CHECK(begun == tier.under_way && begun <= options_.max_copies, "copies that have begun are counted");
    CAIRN_CHECK(tier.waiting.empty() || begun == options_.max_copies, "a copy waits only for its turn");
    CAIRN_CHECK(tier.tier->counts().active >= room, "the room of copies is nobody's");
  }
  check_waiters();
  CAIRN_CHECK((copies_.empty() && loads_.empty()) == moving_.empty(), "whoever waits, waits for something that moves");
}

void OffloadEngine::check_waiters() const {
  std::map<Waiter, std::uint32_t> waits;
  for (const auto& [id, copy] : copies_) {
    ++waits[copy.waiter];
  }
  for (const auto& [id, copy] : copies_) {
    CAIRN_CHECK(copy.waits_for == waits[Waiter(id)], "a copy waits for those that will tell it");
  }
  for (const auto& [id, load] : loads_) {
    CAIRN_CHECK(load.waits_for == waits[Waiter(id)], "a load waits for those that will tell it");
  }
  for (const auto& [id, hold] : holds_) {
    CAIRN_CHECK(hold.copies > 0 && hold.copies == waits[Waiter(id)], "blocks are held while copies read them");
  }
}

}  // namespace cairn::sim
