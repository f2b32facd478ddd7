#include "cairn/manager/page_copies.h"

#include <algorithm>
#include <condition_variable>
#include <memory>
#include <unordered_set>
#include <utility>

#include "cairn/base/deadline.h"
#include "cairn/base/mutex.h"
#include "cairn/base/str_cat.h"
#include "cairn/transfer/checksum.h"

namespace cairn {

namespace {

constexpr std::uint64_t kWord = 8;         // bytes; checksums are made of words
constexpr std::size_t kMostAtOnce = 64;    // pages
constexpr std::uint32_t kShareAtOnce = 8;  // of the host tier: a store and a fetch hold two such shares each
constexpr int kFetchAttempts = 2;          // the disk may have a page whose bytes in host memory are wrong
// Requests end by their deadlines; if the manager's thread is stuck, nobody waits for it longer than this.
constexpr Duration kGrace = std::chrono::milliseconds(500);

// The outcome of a request, for a thread that waits for a limited time. Shared with the request.
template <typename Outcome>
class Awaited {
 public:
  void end(Outcome&& outcome) {
    const MutexLock lock(mutex_);
    outcome_.emplace(std::move(outcome));
    ended_.notify_all();
  }
  [[nodiscard]] std::optional<Outcome> wait(Duration longest) {
    const MutexLock lock(mutex_);
    const auto is_over = [this]() CAIRN_REQUIRES(mutex_) { return outcome_.has_value(); };
    ended_.wait_for(mutex_, longest, is_over);
    return std::exchange(outcome_, std::nullopt);
  }

 private:
  Mutex mutex_{LockRank::kOperations};
  std::condition_variable_any ended_;
  std::optional<Outcome> outcome_ CAIRN_GUARDED_BY(mutex_);
};

std::vector<BlockKey> keys_of(const PageList& pages, std::span<const std::uint32_t> chosen) {
  std::vector<BlockKey> keys;
  keys.reserve(chosen.size());
  for (const std::uint32_t page : chosen) {
    keys.push_back(pages.keys[page]);
  }
  return keys;
}

// The parts of one page.
struct Parts {
  std::span<std::byte* const> addresses;
  std::span<const std::uint64_t> bytes;
};
Parts parts_of(const PageList& pages, std::size_t page) {
  const std::size_t count = pages.parts.size() / pages.keys.size();
  return {pages.parts.subspan(page * count, count), pages.part_bytes.subspan(page * count, count)};
}

enum class Direction : std::uint8_t { kIntoBlock, kOutOfBlock };

// Rows of whole words lie in a contiguous block as their words are numbered, so parts are summed where they are.
BlockSums copy_page(Direction direction, std::byte* block, const Parts& parts) {
  BlockSums sums;
  std::uint64_t at = 0;
  for (std::size_t i = 0; i < parts.addresses.size(); ++i) {
    std::byte* to = block + at;
    std::byte* from = parts.addresses[i];
    if (direction == Direction::kOutOfBlock) {
      std::swap(to, from);
    }
    sums += copy_and_sum(to, {from, parts.bytes[i]}, at / kWord);
    at += parts.bytes[i];
  }
  return sums;
}

}  // namespace

// Pages in the host tier, on their way to the tier below.
struct PageCopies::Saving {
  Pages chosen = {};
  ImmutableBlocks held = {};                                   // as long as they are copied
  std::shared_ptr<Awaited<OffloadOutcome>> outcome = nullptr;  // null: there is nothing to wait for
};

// Pages that are held in the host tier until they are copied, so that no other call takes their room, or are on their way there.
struct PageCopies::Arriving {
  ImmutableBlocks there = {};
  std::shared_ptr<Awaited<ImmutableBlocks>> outcome = nullptr;  // null: there is nothing to wait for
};

PageCopies::PageCopies(ManagerTiers& tiers, const Clock& clock, Metrics& metrics)
    : tiers_(tiers),
      clock_(clock),
      host_(tiers.tier(CacheLevel::kG2)),
      disk_(tiers.tier(CacheLevel::kG3)),
      stored_(metrics.counter("cairn_pages_stored_total", "Pages copied from the caller's memory and stored")),
      known_(metrics.counter("cairn_pages_known_total", "Pages that were to be stored and were stored already")),
      not_stored_(metrics.counter("cairn_pages_not_stored_total", "Pages that could not be stored")),
      fetched_(metrics.counter("cairn_pages_fetched_total", "Pages copied to the caller's memory and verified")),
      missed_(metrics.counter("cairn_pages_missed_total", "Pages that were to be fetched and could not be")),
      wrong_(metrics.counter("cairn_pages_wrong_total", "Pages whose bytes in host memory were not those stored")) {}

Status PageCopies::check(const PageList& pages) const {
  if (host_ == nullptr || !host_->layout()->regions().front()->is_host()) {
    return fail(ErrorCode::kFailedPrecondition,
                "pages are stored and fetched through a host tier in this process; set host.size");
  }
  const KvShape& shape = host_->layout()->shape();
  if (shape.row_bytes() % kWord != 0) {
    return fail(ErrorCode::kFailedPrecondition,
                str_cat("rows of ", shape.row_bytes(),
                        " bytes: pages need rows of whole words of 8 bytes; change model.head_size"));
  }
  const std::size_t count = pages.keys.size();
  const bool fits = count == 0 ? pages.parts.empty() : !pages.parts.empty() && pages.parts.size() % count == 0;
  if (!fits || pages.parts.size() != pages.part_bytes.size()) {
    return fail(ErrorCode::kInvalidArgument,
                str_cat(count, " pages with ", pages.parts.size(), " parts and ", pages.part_bytes.size(),
                        " sizes; give the same number of parts for each page, and a size for each part"));
  }
  for (std::size_t page = 0; page < count; ++page) {
    const Parts parts = parts_of(pages, page);
    std::uint64_t bytes = 0;
    for (std::size_t i = 0; i < parts.bytes.size(); ++i) {
      if (parts.addresses[i] == nullptr || parts.bytes[i] % kWord != 0 || parts.bytes[i] > shape.block_bytes()) {
        return fail(ErrorCode::kInvalidArgument,
                    str_cat("part ", i, " of page ", page, " has ", parts.bytes[i],
                            parts.addresses[i] == nullptr ? " bytes and no address" : " bytes",
                            "; give addresses, and sizes that are multiples of 8 and at most a block"));
      }
      bytes += parts.bytes[i];
    }
    if (bytes != shape.block_bytes()) {
      return fail(ErrorCode::kInvalidArgument,
                  str_cat("page ", page, " has ", bytes, " bytes; a block has ", shape.block_bytes()));
    }
  }
  return {};
}

std::size_t PageCopies::pages_at_once() const {
  return std::clamp<std::size_t>(host_->pool()->capacity() / kShareAtOnce, 1, kMostAtOnce);
}

// Two runs of pages of a store and two of a fetch fit into the tier.
bool PageCopies::can_overlap() const { return host_->pool()->capacity() >= 2 * kShareAtOnce; }

bool PageCopies::is_stored(const BlockKey& key) const { return !tiers_.registry().tiers_of(key).empty(); }

std::byte* PageCopies::address(BlockId block_id) const {
  const BlockLayout& layout = *host_->layout();
  const BlockLayout::Address at = layout.address(index_of(block_id), 0, 0, 0, 0);
  return layout.regions()[at.region]->base() + at.offset;
}

// --- storing ---

Result<std::vector<bool>> PageCopies::store(const PageList& pages, TimePoint deadline) {
  CAIRN_TRY(check(pages));
  std::vector<bool> stored(pages.keys.size());
  const BlockPool& lowest = disk_ != nullptr ? *disk_->pool() : *host_->pool();
  Pages chosen;
  std::unordered_set<BlockKey> seen;
  for (std::uint32_t page = 0; page < pages.keys.size(); ++page) {
    if (lowest.contains(pages.keys[page])) {
      stored[page] = true;
    } else if (seen.insert(pages.keys[page]).second) {
      chosen.push_back(page);
    }
  }
  known_.add(static_cast<std::uint64_t>(std::ranges::count(stored, true)));
  std::optional<Saving> before;
  for (std::span<const std::uint32_t> left = chosen; !left.empty();) {
    const std::span<const std::uint32_t> next = left.first(std::min(left.size(), pages_at_once()));
    if (before && !can_overlap()) {
      finish_saving(pages, *std::exchange(before, std::nullopt), deadline, stored);
    }
    Saving saving = begin_saving(pages, next, deadline);
    if (before) {
      finish_saving(pages, *std::exchange(before, std::nullopt), deadline, stored);
    }
    before.emplace(std::move(saving));
    left = left.subspan(next.size());
  }
  if (before) {
    finish_saving(pages, *std::move(before), deadline, stored);
  }
  const auto kept = std::ranges::count_if(chosen, [&stored](std::uint32_t page) -> bool { return stored[page]; });
  stored_.add(static_cast<std::uint64_t>(kept));
  not_stored_.add(chosen.size() - static_cast<std::size_t>(kept));
  for (std::size_t page = 0; page < stored.size(); ++page) {  // keys that were given twice
    stored[page] = stored[page] || is_stored(pages.keys[page]);
  }
  return stored;
}

PageCopies::Saving PageCopies::begin_saving(const PageList& pages, std::span<const std::uint32_t> chosen,
                                            TimePoint deadline) {
  Saving saving{.chosen = {chosen.begin(), chosen.end()}};
  const std::vector<BlockKey> keys = keys_of(pages, chosen);
  saving.held = host_->pool()->scan(keys);
  Pages absent;
  for (const std::uint32_t page : chosen) {
    if (!host_->pool()->contains(pages.keys[page])) {
      absent.push_back(page);
    }
  }
  for (std::size_t count = absent.size(); count > 0 && !add_blocks(pages, std::span(absent).first(count), saving.held);
       count /= 2) {
  }
  Offloader* const offloader = tiers_.offloader_into(CacheLevel::kG3);
  if (saving.held.empty() || offloader == nullptr) {
    return saving;
  }
  const auto outcome = std::make_shared<Awaited<OffloadOutcome>>();
  OffloadRequest request{.deadline = deadline,
                         .done = [outcome](OffloadOutcome&& ended) { outcome->end(std::move(ended)); }};
  request.keys.reserve(saving.held.size());
  for (std::uint32_t i = 0; i < saving.held.size(); ++i) {
    request.keys.push_back(saving.held.key(i));
  }
  if (offloader->offload(std::move(request))) {
    saving.outcome = outcome;
  }
  return saving;
}

bool PageCopies::add_blocks(const PageList& pages, std::span<const std::uint32_t> chosen, ImmutableBlocks& held) {
  Result<MutableBlocks> room = host_->pool()->allocate(static_cast<std::uint32_t>(chosen.size()));
  if (!room) {
    return false;
  }
  std::vector<BlockFacts> facts;
  facts.reserve(chosen.size());
  for (std::size_t i = 0; i < chosen.size(); ++i) {
    const BlockKey& key = pages.keys[chosen[i]];
    const BlockSums sums = copy_page(Direction::kIntoBlock, address(room->block_ids()[i]), parts_of(pages, chosen[i]));
    const Checksum checksum = finish(sums, host_->block_bytes(), host_->tag_of(key));
    facts.push_back({.block = {.key = key, .parent = SequenceHash{key.parent_fragment()}},
                     .priority = Retention().priority,
                     .checksum = static_cast<std::uint64_t>(checksum)});
  }
  auto complete = std::move(*room).complete_as(facts);
  if (!complete) {
    return false;
  }
  auto registered = std::move(*complete).register_blocks();
  if (!registered) {
    return false;
  }
  if (held.empty()) {
    held = *std::move(registered);
    return true;
  }
  return held.append(*std::move(registered)).has_value();
}

void PageCopies::finish_saving(const PageList& pages, Saving&& saving, TimePoint deadline, std::vector<bool>& stored) {
  if (saving.outcome != nullptr) {
    (void)saving.outcome->wait(time_until(deadline, clock_.now()) + kGrace);
  }
  // Asked while the blocks are held. A page that only host memory has is stored too: the disk may be out of use.
  for (const std::uint32_t page : saving.chosen) {
    stored[page] = is_stored(pages.keys[page]);
  }
}

// --- fetching ---

Result<std::vector<bool>> PageCopies::fetch(const PageList& pages, TimePoint deadline) {
  CAIRN_TRY(check(pages));
  std::vector<bool> fetched(pages.keys.size());
  for (int attempt = 0; attempt < kFetchAttempts; ++attempt) {
    Pages chosen;
    for (std::uint32_t page = 0; page < pages.keys.size(); ++page) {
      if (!fetched[page] && is_stored(pages.keys[page])) {
        chosen.push_back(page);
      }
    }
    fetch_some(pages, chosen, deadline, fetched);
  }
  const auto found = static_cast<std::uint64_t>(std::ranges::count(fetched, true));
  fetched_.add(found);
  missed_.add(pages.keys.size() - found);
  return fetched;
}

void PageCopies::fetch_some(const PageList& pages, const Pages& chosen, TimePoint deadline,
                            std::vector<bool>& fetched) {
  const std::size_t most = pages_at_once();
  const auto run_at = [&](std::size_t first) {
    return std::span(chosen).subspan(first, std::min(most, chosen.size() - first));
  };
  Arriving next = chosen.empty() ? Arriving() : begin_arriving(pages, run_at(0), deadline);
  for (std::size_t first = 0; first < chosen.size(); first += most) {
    Arriving now = std::move(next);
    std::optional<ImmutableBlocks> arrived;
    if (now.outcome != nullptr) {
      arrived = now.outcome->wait(time_until(deadline, clock_.now()) + kGrace);
    }
    const bool is_last = first + most >= chosen.size();
    if (!is_last && can_overlap()) {
      next = begin_arriving(pages, run_at(first + most), deadline);  // they are read while these are copied
    }
    copy_out(pages, run_at(first), fetched);
    if (!is_last && !can_overlap()) {
      now = {};
      arrived.reset();
      next = begin_arriving(pages, run_at(first + most), deadline);
    }
  }
}

PageCopies::Arriving PageCopies::begin_arriving(const PageList& pages, std::span<const std::uint32_t> chosen,
                                                TimePoint deadline) {
  Arriving arriving{.there = host_->pool()->scan(keys_of(pages, chosen))};
  std::unordered_set<BlockKey> seen;
  for (std::uint32_t i = 0; i < arriving.there.size(); ++i) {
    seen.insert(arriving.there.key(i));
  }
  std::vector<BlockKey> keys;
  for (const std::uint32_t page : chosen) {
    if (seen.insert(pages.keys[page]).second) {
      keys.push_back(pages.keys[page]);
    }
  }
  if (keys.empty() || disk_ == nullptr) {
    return arriving;
  }
  // Ends the wait when the load destroys `done`, not when it calls it: until then the load holds the blocks too, and a tier of few
  // blocks has no room for those that come next.
  struct Arrival {
    explicit Arrival(std::shared_ptr<Awaited<ImmutableBlocks>> given) : outcome(std::move(given)) {}
    Arrival(const Arrival&) = delete;
    Arrival& operator=(const Arrival&) = delete;
    ~Arrival() { outcome->end(std::move(blocks)); }
    const std::shared_ptr<Awaited<ImmutableBlocks>> outcome;
    ImmutableBlocks blocks;
  };
  const auto outcome = std::make_shared<Awaited<ImmutableBlocks>>();
  auto done = [arrival = std::make_shared<Arrival>(outcome), keys, host = host_](std::uint32_t /*arrived*/) {
    arrival->blocks = host->pool()->scan(keys);
  };
  const Result<LoadId> begun =
      tiers_.onboarder().prefetch({.keys = keys, .deadline = deadline, .done = std::move(done)});
  if (begun) {
    arriving.outcome = outcome;
  }
  return arriving;
}

void PageCopies::copy_out(const PageList& pages, std::span<const std::uint32_t> chosen, std::vector<bool>& fetched) {
  const std::vector<BlockKey> keys = keys_of(pages, chosen);
  std::vector<BlockKey> wrong;
  {
    const ScatteredMatch match = host_->pool()->match_scattered(keys);
    const std::vector<BlockFacts> facts = match.blocks.facts();
    Pages right;
    for (std::size_t i = 0; i < chosen.size(); ++i) {
      if (!match.position[i]) {
        continue;
      }
      const std::uint32_t held = *match.position[i];
      const BlockSums sums =
          copy_page(Direction::kOutOfBlock, address(match.blocks.block_ids()[held]), parts_of(pages, chosen[i]));
      const Checksum checksum = finish(sums, host_->block_bytes(), host_->tag_of(keys[i]));
      if (static_cast<std::uint64_t>(checksum) == facts[held].checksum) {
        right.push_back(chosen[i]);
      } else if (facts[held].checksum != static_cast<std::uint64_t>(kNoChecksum)) {
        wrong.push_back(keys[i]);  // a block without a checksum was not stored as a page: nobody can verify it
      }
    }
    // A reset came meanwhile: nothing that was stored before it is served, and with new weights all checksums differ.
    if (!match.blocks.empty() && !match.blocks.is_current()) {
      return;
    }
    for (const std::uint32_t page : right) {
      fetched[page] = true;
    }
  }
  if (!wrong.empty()) {
    wrong_.add(wrong.size());
    host_->drop(wrong);
  }
}

}  // namespace cairn
