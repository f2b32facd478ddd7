// Planning: which keys come from where, which of them are worth it, and into what room.
#include <algorithm>
#include <utility>

#include "cairn/base/str_cat.h"
#include "cairn/onboard/onboarder_impl.h"

namespace cairn {

namespace {

// Blocks that take two hops do so in pieces of this many, so that both hops work at once.
constexpr std::uint32_t kPieceBlocks = 32;

// The first `count` of these keys, all of them there a moment ago, or as many from the first on as still are.
std::optional<PinnedBlocks> hold_first(BlockPool& pool, std::span<const BlockKey> keys, std::uint32_t& count) {
  while (count > 0) {
    PinnedBlocks held = pool.hold(keys.first(count));
    if (held.size() == count) {
      return held;
    }
    std::uint32_t same = 0;
    while (same < held.size() && held.key(same) == keys[same]) {
      ++same;
    }
    count = same;
  }
  return std::nullopt;
}

bool copies(const Piece& piece) { return piece.stage != Piece::Stage::kAwaiting; }

}  // namespace

Onboarder::Impl::Ways Onboarder::Impl::ways() const {
  Ways ways;
  ways.host = may_be_tried(parts_.host_to_device);
  ways.disk_by_host = options_.through_host && ways.host && host_pool() != nullptr && may_be_tried(parts_.disk_to_host);
  ways.disk_straight = may_be_tried(parts_.disk_to_device);
  return ways;
}

TierSearch Onboarder::Impl::search(const Ways& ways, bool is_prefetch) const {
  TierSearch tiers(*parts_.registry);
  tiers.add(parts_.device);
  if (is_prefetch) {
    tiers.add(parts_.host);
    tiers.add(may_be_tried(parts_.disk_to_host) ? parts_.disk : nullptr);
  } else {
    tiers.add(ways.host ? parts_.host : nullptr);
    tiers.add(ways.disk_by_host || ways.disk_straight ? parts_.disk : nullptr);
  }
  return tiers;
}

PrefixLocation Onboarder::Impl::locate(std::span<const BlockKey> keys) const {
  const TierSearch tiers = search(ways(), false);
  PrefixLocation location;
  location.levels.reserve(keys.size());
  while (!keys.empty()) {
    const Stretch stretch = tiers.next(keys);
    if (stretch.blocks == 0) {
      break;
    }
    location.levels.insert(location.levels.end(), stretch.blocks, stretch.level);
    keys = keys.subspan(stretch.blocks);
  }
  return location;
}

PiecePtr Onboarder::Impl::coming(Goal goal, const BlockKey& key) const {
  const auto& pieces = coming_[index_of(goal)];
  const auto found = pieces.find(key);
  return found != pieces.end() ? found->second : nullptr;
}

std::uint32_t Onboarder::Impl::count_not_coming(Goal goal, std::span<const BlockKey> keys) const {
  const auto& pieces = coming_[index_of(goal)];
  if (pieces.empty()) {
    return static_cast<std::uint32_t>(keys.size());
  }
  const auto first = std::find_if(keys.begin(), keys.end(), [&](const BlockKey& key) { return pieces.contains(key); });
  return static_cast<std::uint32_t>(first - keys.begin());
}

Onboarder::Impl::Plan Onboarder::Impl::survey(const LoadPtr& load, std::uint32_t first, std::uint32_t last,
                                              std::uint32_t attempt) {
  const Ways now = ways();
  const TierSearch tiers = search(now, load->kind == Load::Kind::kPrefetch);
  const std::optional<Goal> goal = attempt + 1 < kAttempts ? load->goal() : std::nullopt;
  Plan plan{.end = first};
  while (plan.end < last) {
    std::span<const BlockKey> keys = load->keys_of(plan.end, last - plan.end);
    if (goal) {
      keys = keys.first(count_not_coming(*goal, keys));
      if (keys.empty()) {
        plan.end += plan_wait(plan, load, last, *goal, attempt);
        continue;
      }
    }
    const Stretch stretch = tiers.next(keys);
    const std::uint32_t planned = stretch.blocks > 0 ? plan_stretch(plan, load, stretch, now, attempt) : 0;
    if (planned == 0 && load->is_prefix()) {
      break;
    }
    plan.end += std::max(planned, 1U);
  }
  return plan;
}

std::uint32_t Onboarder::Impl::plan_wait(Plan& plan, const LoadPtr& load, std::uint32_t last, Goal goal,
                                         std::uint32_t attempt) {
  const PiecePtr other = coming(goal, load->keys[plan.end]);
  std::uint32_t count = 1;
  while (plan.end + count < last && coming(goal, load->keys[plan.end + count]) == other) {
    ++count;
  }
  plan.finds.push_back({.from = other->from, .blocks = count, .is_coming = true});
  plan.pieces.push_back(std::make_shared<Piece>(Piece{.load = load,
                                                      .first = plan.end,
                                                      .count = count,
                                                      .from = other->from,
                                                      .stage = Piece::Stage::kAwaiting,
                                                      .attempt = attempt,
                                                      .awaited = other,
                                                      .awaited_at = goal}));
  return count;
}

std::uint32_t Onboarder::Impl::plan_stretch(Plan& plan, const LoadPtr& load, const Stretch& stretch, const Ways& ways,
                                            std::uint32_t attempt) {
  const std::uint32_t first = plan.end;
  const std::span<const BlockKey> keys = load->keys_of(first, stretch.blocks);
  Piece piece{.load = load, .first = first, .count = stretch.blocks, .from = stretch.level, .attempt = attempt};
  if (load->kind == Load::Kind::kPrefetch && stretch.level != CacheLevel::kG3) {
    // At the first look that is none of its business; later it is what it waited for.
    if (attempt > 0) {
      std::fill_n(load->is_there.begin() + first, stretch.blocks, true);
    }
    return stretch.blocks;
  }
  if (stretch.level == CacheLevel::kG1) {
    std::uint32_t count = stretch.blocks;
    if (std::optional<PinnedBlocks> held = hold_first(*device_pool(), keys, count)) {
      load->here.push_back(*std::move(held));
      plan.finds.push_back({.from = CacheLevel::kG1, .blocks = count});
    }
    return count;
  }
  if (stretch.level == CacheLevel::kG2) {
    piece.lane = Lane::kHostToDevice;
    return plan_copy(plan, std::move(piece));
  }
  if (load->kind != Load::Kind::kPrefetch && !ways.disk_by_host) {
    piece.lane = Lane::kDiskToDevice;
    return plan_copy(plan, std::move(piece));
  }
  // By way of the host, or only there: in pieces, small beside its pool.
  const std::uint32_t most = std::clamp(host_pool()->capacity() / 4, 1U, kPieceBlocks);
  std::uint32_t planned = 0;
  while (planned < stretch.blocks) {
    const std::span<const BlockKey> rest = keys.subspan(planned);
    const std::uint32_t unique =
        attempt + 1 < kAttempts ? count_not_coming(Goal::kHost, rest) : static_cast<std::uint32_t>(rest.size());
    const std::uint32_t count = std::min(unique, most);
    plan.end = first + planned;
    std::uint32_t added = 0;
    if (count == 0) {
      added = plan_wait(plan, load, first + stretch.blocks, Goal::kHost, attempt);
    } else {
      added = plan_copy(
          plan, Piece{.load = load,
                      .first = plan.end,
                      .count = count,
                      .from = stretch.level,
                      .stage = load->kind == Load::Kind::kPrefetch ? Piece::Stage::kLast : Piece::Stage::kToHost,
                      .lane = Lane::kDiskToHost,
                      .attempt = attempt});
    }
    planned += added;
    if (added == 0 || (count > 0 && added < count)) {
      break;
    }
  }
  plan.end = first;
  return planned;
}

std::uint32_t Onboarder::Impl::plan_copy(Plan& plan, Piece&& piece) {
  std::optional<PinnedBlocks> held =
      hold_first(*links_[index_of(piece.lane)]->from().pool(), piece.keys(), piece.count);
  if (!held) {
    return 0;
  }
  piece.source.emplace(*std::move(held));
  plan.finds.push_back({.from = piece.from, .blocks = piece.count});
  const std::uint32_t count = piece.count;
  plan.pieces.push_back(std::make_shared<Piece>(std::move(piece)));
  return count;
}

LoadStretch Onboarder::Impl::describe(const Find& find, const Ways& ways) const {
  LoadStretch stretch{.from = find.from, .blocks = find.blocks};
  if (find.from == CacheLevel::kG1) {
    return stretch;
  }
  // What is coming already is among the bytes ahead.
  stretch.block_bytes = find.is_coming ? 0 : parts_.device->block_bytes();
  const auto add = [&stretch](const TierLink& link) {
    const double speed = link.meter().bytes_per_second();
    if (stretch.bytes_per_second == 0 || (speed > 0 && speed < stretch.bytes_per_second)) {
      stretch.bytes_per_second = speed;
      stretch.bytes_ahead = link.meter().totals().bytes_under_way;
    }
  };
  if (find.from == CacheLevel::kG2) {
    add(*parts_.host_to_device);
  } else if (!ways.disk_by_host && parts_.disk_to_device != nullptr) {
    add(*parts_.disk_to_device);
  } else {
    // Both hops work at once: the slower one counts. As long as the disk is not known it is tried.
    add(*parts_.disk_to_host);
    if (stretch.bytes_per_second > 0) {
      add(*parts_.host_to_device);
    }
  }
  return stretch;
}

std::uint32_t Onboarder::Impl::weigh(std::span<const Find> finds, std::uint32_t first_token) const {
  const Ways now = ways();
  std::vector<LoadStretch> stretches;
  stretches.reserve(finds.size());
  for (const Find& find : finds) {
    stretches.push_back(describe(find, now));
  }
  return parts_.cost->worth_loading(
      {.stretches = stretches, .block_size = parts_.block_size, .first_token = first_token});
}

std::uint32_t Onboarder::Impl::worth_loading(const PrefixLocation& found, std::uint32_t first_block) const {
  if (!options_.weigh) {
    return found.blocks();
  }
  std::vector<Find> finds;
  for (const CacheLevel level : found.levels) {
    if (finds.empty() || finds.back().from != level) {
      finds.push_back({.from = level});
    }
    ++finds.back().blocks;
  }
  return finds.empty() ? 0 : std::min(weigh(finds, first_block * parts_.block_size), found.blocks());
}

std::uint32_t Onboarder::Impl::worth_loading(Load& load, std::span<const Find> finds, const LoadRequest& request) {
  std::uint32_t blocks = 0;
  for (const Find& find : finds) {
    blocks += find.blocks;
  }
  if (options_.weigh && request.weigh && blocks > 0) {
    const std::uint32_t worth = weigh(finds, load.base.size() * parts_.block_size);
    load.not_worth_it = blocks - std::min(worth, blocks);
    blocks -= load.not_worth_it;
  }
  if (request.most == 0) {
    return blocks;
  }
  std::uint32_t within = 0;
  std::uint32_t loaded = 0;
  for (const Find& find : finds) {
    const std::uint32_t taken =
        find.from == CacheLevel::kG1 ? find.blocks : std::min(find.blocks, request.most - loaded);
    loaded += find.from == CacheLevel::kG1 ? 0 : taken;
    within += taken;
    if (taken < find.blocks) {
      break;
    }
  }
  return std::min(blocks, within);
}

void Onboarder::Impl::trim(Plan& plan, std::uint32_t end) const {
  plan.end = std::min(plan.end, end);
  std::erase_if(plan.pieces, [end](const PiecePtr& piece) { return piece->first >= end; });
  if (plan.pieces.empty() || plan.pieces.back()->first + plan.pieces.back()->count <= end) {
    return;
  }
  Piece& last = *plan.pieces.back();
  last.count = end - last.first;
  if (copies(last)) {
    CopySource shorter(links_[index_of(last.lane)]->from().pool()->hold(last.keys()));
    last.source.emplace(std::move(shorter));
  }
}

// Room at the goal for all that is to be copied; where there is less, the plan gets shorter.
std::optional<MutableBlocks> Onboarder::Impl::make_room(Load& load, Plan& plan, Outbox& outbox) {
  std::uint32_t wanted = 0;
  for (const PiecePtr& piece : plan.pieces) {
    wanted += copies(*piece) ? piece->count : 0;
  }
  BlockPool* pool = goal_pool(load);
  std::optional<MutableBlocks> room;
  std::uint32_t count = wanted;
  while (count > 0 && !room) {
    if (Result<MutableBlocks> allocated = pool->allocate(count)) {
      room.emplace(*std::move(allocated));
    } else {
      const std::uint32_t available = pool->counts().available();
      count = available < count ? available : count / 2;
    }
  }
  if (count == wanted) {
    return room;
  }
  std::uint32_t left = count;
  for (const PiecePtr& piece : plan.pieces) {
    if (!copies(*piece)) {
      continue;
    }
    if (piece->count > left) {
      const std::uint32_t end = piece->first + left;
      cut(load, end,
          str_cat("no room in ", to_string(pool->tier()), " for ", wanted - count, " of ", wanted, " blocks"), nullptr,
          outbox);
      trim(plan, end);
      break;
    }
    left -= piece->count;
  }
  return room;
}

void Onboarder::Impl::begin(const LoadPtr& load, Plan& plan, std::uint32_t first, std::optional<MutableBlocks> targets,
                            Outbox& outbox) {
  if (load->kind != Load::Kind::kBlocks && !load->has_targets) {
    targets = std::nullopt;
    if (std::optional<MutableBlocks> room = make_room(*load, plan, outbox)) {
      targets.emplace(*std::move(room));
    }
  }
  for (const PiecePtr& piece : plan.pieces) {
    if (load->has_targets && targets) {
      // One for each key, wanted or not.
      (void)targets->take_front(piece->first - first);
      first = piece->first + piece->count;
    }
    if (targets && (load->has_targets || copies(*piece))) {
      piece->targets.emplace(targets->take_front(piece->count));
    }
    piece->place.emplace_back();
    load->pieces.push_back(piece);
    ++load->open;
    if (copies(*piece)) {
      for (const BlockKey& key : piece->keys()) {
        if (const std::optional<Goal> goal = load->goal()) {
          coming_[index_of(*goal)].try_emplace(key, piece);
        }
        if (piece->stage == Piece::Stage::kToHost) {
          coming_[index_of(Goal::kHost)].try_emplace(key, piece);
        }
      }
      queue(piece);
      continue;
    }
    totals_.joined += piece->attempt == 0 ? piece->count : 0;
    const PiecePtr awaited = std::exchange(piece->awaited, nullptr);
    if (awaited->stage == Piece::Stage::kOver) {
      awoken_.push_back(piece);
    } else {
      awaited->waiting[index_of(piece->awaited_at)].push_back(piece);
    }
  }
}

}  // namespace cairn
