#include "cairn/events/consolidator.h"

#include <algorithm>
#include <string>
#include <unordered_map>
#include <utility>

#include "cairn/base/check.h"
#include "cairn/base/flat_table.h"
#include "cairn/hash/hash_bytes.h"

namespace cairn {

namespace {

// Blocks and keys of one event that is announced; longer runs are split.
constexpr std::size_t kMostBlocksPerStored = 128;
constexpr std::size_t kMostBlocksPerRemoved = 1024;

struct KvName {
  std::uint64_t hash = 0;
  std::uint32_t group = 0;
  std::uint32_t is_used = 0;  // 1 in a name of a block: tables hold no names that are all 0

  friend bool operator==(const KvName&, const KvName&) = default;
};
std::uint64_t mixed(const KvName& name) {
  // Hashes of engines are random already, but a publisher may choose them.
  const std::uint64_t folded = (name.hash ^ (std::uint64_t{name.group} << 32)) * 0x9e3779b97f4a7c15;
  return (folded ^ (folded >> 32)) * 0xd6e8feb86659fd93;
}
struct KvNameHash {
  std::size_t operator()(const KvName& name) const { return mixed(name); }
};

constexpr std::uint32_t kNoDetails = ~std::uint32_t{0};

// What is known of a block.
struct KvBlock {
  std::uint64_t parent = 0;
  std::uint32_t details = kNoDetails;
  std::uint16_t where = 0;     // a bit for each source and tier
  std::uint8_t announced = 0;  // a bit for each tier; of G1 alone in kDedup
  bool has_parent = false;
  bool knows_parent = false;
};
static_assert(Consolidator::kMaxSources * kCacheLevels <= 16);

struct KvBlockTraits {
  static std::uint64_t hash(const KvName& name) { return mixed(name); }
  static bool is_vacant(const KvName& name, const KvBlock&) { return name.is_used == 0; }
  static constexpr std::uint32_t kMaxPercent = 75;
};

// What Stored events repeat of a block. Most blocks have tokens alone.
struct KvDetails {
  std::vector<Token> tokens;
  struct Rare {
    std::optional<std::int64_t> lora_id;
    std::string lora_name;
    std::string cache_salt;
    std::string extra_keys;
    std::string attention;
    std::optional<std::uint32_t> window;

    friend bool operator==(const Rare&, const Rare&) = default;
  };
  std::unique_ptr<Rare> rare;
};

}  // namespace

class Consolidator::Impl {
 public:
  explicit Impl(EventMode mode) : mode_(mode) {}

  void apply(std::uint32_t source, const KvEvent& event, std::vector<KvEvent>& out, bool knows_parent) {
    CAIRN_CHECK(source < kMaxSources, "a consolidator has a few sources");
    names_groups_ |= event.group.has_value();
    if (const auto* const stored = std::get_if<KvStored>(&event.data)) {
      store(source, event, *stored, knows_parent, out);
    } else if (const auto* const removed = std::get_if<KvRemoved>(&event.data)) {
      for (const std::uint64_t hash : removed->hashes) {
        remove(name_of(event, hash), bit(source, event.tier), out);
      }
    } else {
      clear(source, std::nullopt, out);
    }
  }

  void clear(std::uint32_t source, std::optional<CacheLevel> tier, std::vector<KvEvent>& out) {
    const auto bits = static_cast<std::uint16_t>(tier ? bit(source, *tier) : 0xfU << (source * kCacheLevels));
    std::vector<KvName> gone;
    bool are_all_gone = true;
    blocks_.for_each([&](const KvName& name, const KvBlock& block) {
      if ((block.where & bits) != 0) {
        gone.push_back(name);
      }
      are_all_gone &= (block.where & ~bits) == 0;
    });
    if (are_all_gone) {
      if (announced_ > 0) {
        out.push_back({.data = KvCleared{}});
      }
      blocks_ = {};
      details_.clear();
      free_details_.clear();
      waiting_.clear();
      announced_ = 0;
      return;
    }
    for (const KvName& name : gone) {
      remove(name, bits, out);
    }
  }

  void replace(std::uint32_t source, CacheLevel tier, std::span<const KvEvent> stored,
               std::span<const std::size_t> orphans, std::vector<KvEvent>& out) {
    Names kept;
    for (const KvEvent& event : stored) {
      for (const std::uint64_t hash : std::get<KvStored>(event.data).hashes) {
        kept.insert(name_of(event, hash), {.knows_parent = true});
      }
    }
    std::vector<KvName> gone;
    const std::uint16_t the_bit = bit(source, tier);
    blocks_.for_each([&](const KvName& name, const KvBlock& block) {
      if ((block.where & the_bit) != 0 && !kept.contains(name)) {
        gone.push_back(name);
      }
    });
    for (const KvName& name : gone) {
      remove(name, the_bit, out);
    }
    for (std::size_t i = 0; i < stored.size(); ++i) {
      apply(source, stored[i], out, !std::ranges::binary_search(orphans, i));
    }
  }

  [[nodiscard]] std::vector<KvEvent> snapshot() const {
    std::vector<KvEvent> out{{.data = KvCleared{}}};
    for (std::uint32_t level = 0; level < kCacheLevels; ++level) {
      const auto tier = static_cast<CacheLevel>(level);
      Names done;
      std::vector<std::pair<KvName, const KvBlock*>> chain;
      blocks_.for_each([&](const KvName& name, const KvBlock& block) {
        // The ancestors that are not in the output yet, from the block up.
        KvName at = name;
        for (const KvBlock* next = &block; next != nullptr && is_announced(*next, tier) && !done.contains(at);) {
          done.insert(at, {});
          chain.emplace_back(at, next);
          at.hash = next->parent;
          next = next->has_parent ? blocks_.find(at) : nullptr;
        }
        for (; !chain.empty(); chain.pop_back()) {
          append_stored(chain.back().first, *chain.back().second, tier, out);
        }
      });
    }
    return out;
  }

  [[nodiscard]] Counts counts() const {
    std::size_t waiting = 0;
    if (mode_ == EventMode::kDedup) {
      waiting = blocks_.size() - announced_;
    }
    return {.blocks = blocks_.size(), .announced = announced_, .waiting = waiting};
  }

 private:
  using Names = FlatTable<KvName, KvBlock, KvBlockTraits>;

  static std::uint16_t bit(std::uint32_t source, CacheLevel tier) {
    return static_cast<std::uint16_t>(1U << (source * kCacheLevels + index_of(tier)));
  }
  static std::uint16_t bits_of_tier(CacheLevel tier) { return static_cast<std::uint16_t>(0x1111U << index_of(tier)); }
  static bool is_announced(const KvBlock& block, CacheLevel tier) {
    return (block.announced >> index_of(tier) & 1) != 0;
  }
  static KvName name_of(const KvEvent& event, std::uint64_t hash) {
    return {.hash = hash, .group = event.group.value_or(0), .is_used = 1};
  }
  [[nodiscard]] std::optional<std::uint32_t> group_of(const KvName& name) const {
    return names_groups_ ? std::optional(name.group) : std::nullopt;
  }

  void store(std::uint32_t source, const KvEvent& event, const KvStored& stored, bool knows_parent,
             std::vector<KvEvent>& out) {
    // An event without tokens (a move to another tier) need not repeat the parent.
    const bool tells_first = stored.parent.has_value() || (knows_parent && !stored.token_ids.empty());
    const std::string salt = salt_of_sequence(event, stored);
    for (std::size_t i = 0; i < stored.hashes.size(); ++i) {
      const KvName name = name_of(event, stored.hashes[i]);
      KvBlock& block = *blocks_.insert(name, {}).first;
      block.where |= bit(source, event.tier);
      if (!block.knows_parent && (i > 0 || tells_first)) {
        block.knows_parent = true;
        block.has_parent = i > 0 || stored.parent.has_value();
        block.parent = i > 0 ? stored.hashes[i - 1] : stored.parent.value_or(0);
      }
      if (block.details == kNoDetails && !stored.token_ids.empty()) {
        block.details = keep(stored, i, salt);
      }
      announce(name, block, event.tier, out);
    }
  }

  // Tells routers of the block, if they do not know it and can be told.
  void announce(const KvName& name, KvBlock& block, CacheLevel tier, std::vector<KvEvent>& out) {
    if (mode_ == EventMode::kPassthrough) {
      if (!is_announced(block, tier)) {
        block.announced |= static_cast<std::uint8_t>(1U << index_of(tier));
        ++announced_;
        append_stored(name, block, tier, out);
      }
      return;
    }
    if (block.announced != 0 || block.details == kNoDetails || !block.knows_parent) {
      return;
    }
    if (block.has_parent) {
      const KvName parent{.hash = block.parent, .group = name.group, .is_used = 1};
      const KvBlock* const found = blocks_.find(parent);
      if (found == nullptr || found->announced == 0) {
        std::vector<KvName>& children = waiting_[parent];
        if (std::ranges::find(children, name) == children.end()) {
          children.push_back(name);
        }
        return;
      }
    }
    block.announced = 1;
    ++announced_;
    append_stored(name, block, CacheLevel::kG1, out);
    announce_children(name, out);
  }

  // Of blocks that waited for this one, however long the chain.
  void announce_children(const KvName& name, std::vector<KvEvent>& out) {
    std::vector<KvName> parents{name};
    while (!parents.empty() && !waiting_.empty()) {
      const auto found = waiting_.find(parents.back());
      parents.pop_back();
      if (found == waiting_.end()) {
        continue;
      }
      const std::vector<KvName> children = std::move(found->second);
      waiting_.erase(found);
      for (const KvName& child : children) {
        KvBlock& block = *blocks_.find(child);
        block.announced = 1;
        ++announced_;
        append_stored(child, block, CacheLevel::kG1, out);
        parents.push_back(child);
      }
    }
  }

  void remove(const KvName& name, std::uint16_t bits, std::vector<KvEvent>& out) {
    KvBlock* const block = blocks_.find(name);
    if (block == nullptr || (block->where & bits) == 0) {
      return;
    }
    block->where &= static_cast<std::uint16_t>(~bits);
    if (mode_ == EventMode::kPassthrough) {
      for (std::uint32_t level = 0; level < kCacheLevels; ++level) {
        const auto tier = static_cast<CacheLevel>(level);
        if (is_announced(*block, tier) && (block->where & bits_of_tier(tier)) == 0) {
          block->announced &= static_cast<std::uint8_t>(~(1U << level));
          --announced_;
          append_removed(name, tier, out);
        }
      }
    }
    if (block->where != 0) {
      return;
    }
    if (block->announced != 0) {
      --announced_;
      append_removed(name, CacheLevel::kG1, out);
    } else {
      stop_waiting(name, *block);
    }
    if (block->details != kNoDetails) {
      details_[block->details] = {};
      free_details_.push_back(block->details);
    }
    blocks_.erase(name);
  }

  void stop_waiting(const KvName& name, const KvBlock& block) {
    if (waiting_.empty() || !block.has_parent) {
      return;
    }
    const auto found = waiting_.find({.hash = block.parent, .group = name.group, .is_used = 1});
    if (found != waiting_.end()) {
      std::erase(found->second, name);
      if (found->second.empty()) {
        waiting_.erase(found);
      }
    }
  }

  // The event that begins a sequence names its salt; later blocks have that of their parent.
  [[nodiscard]] std::string salt_of_sequence(const KvEvent& event, const KvStored& stored) const {
    if (!stored.parent) {
      return salt_of(stored);
    }
    const KvBlock* const parent = blocks_.find(name_of(event, *stored.parent));
    if (parent == nullptr || parent->details == kNoDetails || details_[parent->details].rare == nullptr) {
      return stored.cache_salt;
    }
    return details_[parent->details].rare->cache_salt;
  }

  std::uint32_t keep(const KvStored& stored, std::size_t i, const std::string& salt) {
    if (free_details_.empty()) {
      free_details_.push_back(static_cast<std::uint32_t>(details_.size()));
      details_.emplace_back();
    }
    const std::uint32_t index = free_details_.back();
    free_details_.pop_back();
    KvDetails& details = details_[index];
    const std::span<const Token> tokens = std::span(stored.token_ids).subspan(i * stored.block_size, stored.block_size);
    details.tokens.assign(tokens.begin(), tokens.end());
    KvDetails::Rare rare{.lora_id = stored.lora_id,
                         .lora_name = stored.lora_name,
                         .cache_salt = salt,
                         .extra_keys = stored.extra_keys.empty() ? std::string() : stored.extra_keys[i],
                         .attention = stored.attention,
                         .window = stored.window};
    if (rare != KvDetails::Rare()) {
      details.rare = std::make_unique<KvDetails::Rare>(std::move(rare));
    }
    return index;
  }

  // Whether an event of blocks with `a` may go on with a block that has `b`; extra keys differ from block to block.
  static bool fit(const KvDetails::Rare* a, const KvStored& event) {
    static const KvDetails::Rare kNone;
    const KvDetails::Rare& rare = a != nullptr ? *a : kNone;
    return rare.lora_id == event.lora_id && rare.lora_name == event.lora_name && rare.cache_salt == event.cache_salt &&
           rare.attention == event.attention && rare.window == event.window &&
           rare.extra_keys.empty() == event.extra_keys.empty();
  }

  void append_stored(const KvName& name, const KvBlock& block, CacheLevel tier, std::vector<KvEvent>& out) const {
    const KvDetails* const details = block.details != kNoDetails ? &details_[block.details] : nullptr;
    const KvDetails::Rare* const rare = details != nullptr ? details->rare.get() : nullptr;
    const std::size_t block_size = details != nullptr ? details->tokens.size() : 0;
    KvStored* stored = nullptr;
    if (!out.empty() && out.back().tier == tier && out.back().group == group_of(name) && block.has_parent) {
      stored = std::get_if<KvStored>(&out.back().data);
      if (stored != nullptr && (stored->hashes.back() != block.parent || stored->block_size != block_size ||
                                stored->hashes.size() >= kMostBlocksPerStored || !fit(rare, *stored))) {
        stored = nullptr;
      }
    }
    if (stored == nullptr) {
      KvEvent& event = out.emplace_back(KvEvent{.data = KvStored{}, .tier = tier, .group = group_of(name)});
      stored = &std::get<KvStored>(event.data);
      if (block.has_parent) {
        stored->parent = block.parent;
      }
      stored->block_size = static_cast<std::uint32_t>(block_size);
      if (rare != nullptr) {
        stored->lora_id = rare->lora_id;
        stored->lora_name = rare->lora_name;
        stored->cache_salt = rare->cache_salt;
        stored->attention = rare->attention;
        stored->window = rare->window;
      }
    }
    stored->hashes.push_back(name.hash);
    if (details != nullptr) {
      stored->token_ids.insert(stored->token_ids.end(), details->tokens.begin(), details->tokens.end());
    }
    if (rare != nullptr && !rare->extra_keys.empty()) {
      stored->extra_keys.push_back(rare->extra_keys);
    }
  }

  void append_removed(const KvName& name, CacheLevel tier, std::vector<KvEvent>& out) const {
    if (!out.empty() && out.back().tier == tier && out.back().group == group_of(name)) {
      if (auto* const removed = std::get_if<KvRemoved>(&out.back().data);
          removed != nullptr && removed->hashes.size() < kMostBlocksPerRemoved) {
        removed->hashes.push_back(name.hash);
        return;
      }
    }
    out.push_back({.data = KvRemoved{{name.hash}}, .tier = tier, .group = group_of(name)});
  }

  const EventMode mode_;
  Names blocks_;
  std::vector<KvDetails> details_;
  std::vector<std::uint32_t> free_details_;
  std::unordered_map<KvName, std::vector<KvName>, KvNameHash> waiting_;  // children of blocks that are not announced
  std::size_t announced_ = 0;
  bool names_groups_ = false;  // an event has named its group, so all of ours do
};

Consolidator::Consolidator(EventMode mode) : impl_(std::make_unique<Impl>(mode)) {}
Consolidator::~Consolidator() = default;
void Consolidator::apply(std::uint32_t source, const KvEvent& event, std::vector<KvEvent>& out, bool knows_parent) {
  impl_->apply(source, event, out, knows_parent);
}
void Consolidator::clear(std::uint32_t source, std::optional<CacheLevel> tier, std::vector<KvEvent>& out) {
  impl_->clear(source, tier, out);
}
void Consolidator::replace(std::uint32_t source, CacheLevel tier, std::span<const KvEvent> stored,
                           std::span<const std::size_t> orphans, std::vector<KvEvent>& out) {
  impl_->replace(source, tier, stored, orphans, out);
}
std::vector<KvEvent> Consolidator::snapshot() const { return impl_->snapshot(); }
Consolidator::Counts Consolidator::counts() const { return impl_->counts(); }

// --- EngineNames ---

class EngineNames::Impl {
 public:
  std::optional<KvEvent> rename(const KvEvent& event) {
    KvEvent renamed = event;
    if (auto* const stored = std::get_if<KvStored>(&renamed.data)) {
      if (!rename(*stored, event)) {
        return std::nullopt;
      }
    } else if (auto* const removed = std::get_if<KvRemoved>(&renamed.data)) {
      rename(*removed, event);
      if (removed->hashes.empty()) {
        return std::nullopt;
      }
    } else {
      clear();
    }
    return renamed;
  }

  void clear() { blocks_.clear(); }
  [[nodiscard]] std::uint64_t unnamed() const { return unnamed_; }

 private:
  struct Known {
    SequenceHash hash{0};
    std::uint8_t tiers = 0;
    std::string salt = {};  // of the sequence
  };

  bool rename(KvStored& stored, const KvEvent& event) {
    const auto tier_bit = static_cast<std::uint8_t>(1U << index_of(event.tier));
    const auto find = [&](std::uint64_t hash) {
      return blocks_.find({.hash = hash, .group = event.group.value_or(0), .is_used = 1});
    };
    if (stored.token_ids.empty()) {  // as known, in another tier
      for (std::uint64_t& hash : stored.hashes) {
        const auto known = find(hash);
        if (known == blocks_.end()) {
          unnamed_ += stored.hashes.size();
          return false;
        }
        known->second.tiers |= tier_bit;
        hash = value_of(known->second.hash);
      }
      stored.parent.reset();
      return true;
    }
    std::optional<SequenceHash> parent;
    std::string salt;
    if (stored.parent) {
      const auto known = find(*stored.parent);
      if (known == blocks_.end()) {
        unnamed_ += stored.hashes.size();
        return false;
      }
      parent = known->second.hash;
      salt = known->second.salt;
      stored.parent = value_of(*parent);
    } else {
      salt = salt_of(stored);
    }
    const std::vector<BlockHash> local = local_hashes(stored, salt);
    for (std::size_t i = 0; i < stored.hashes.size(); ++i) {
      BlockHash own = local[i];
      if (has_items(stored, i)) {
        own = BlockHash{hash_bytes(std::as_bytes(std::span(stored.extra_keys[i])), value_of(own))};
      }
      const SequenceHash hash = parent ? chain_hash(*parent, own) : sequence_hash_of_root(own);
      Known& known = blocks_[{.hash = stored.hashes[i], .group = event.group.value_or(0), .is_used = 1}];
      known.hash = hash;
      known.tiers |= tier_bit;
      known.salt = salt;
      stored.hashes[i] = value_of(hash);
      parent = hash;
    }
    return true;
  }

  void rename(KvRemoved& removed, const KvEvent& event) {
    std::vector<std::uint64_t> hashes;
    for (const std::uint64_t hash : removed.hashes) {
      const auto known = blocks_.find({.hash = hash, .group = event.group.value_or(0), .is_used = 1});
      if (known == blocks_.end()) {
        continue;
      }
      hashes.push_back(value_of(known->second.hash));
      known->second.tiers &= static_cast<std::uint8_t>(~(1U << index_of(event.tier)));
      if (known->second.tiers == 0) {
        blocks_.erase(known);
      }
    }
    removed.hashes = std::move(hashes);
  }

  std::unordered_map<KvName, Known, KvNameHash> blocks_;
  std::uint64_t unnamed_ = 0;
};

EngineNames::EngineNames() : impl_(std::make_unique<Impl>()) {}
EngineNames::~EngineNames() = default;
std::optional<KvEvent> EngineNames::rename(const KvEvent& event) { return impl_->rename(event); }
void EngineNames::clear() { impl_->clear(); }
std::uint64_t EngineNames::unnamed() const { return impl_->unnamed(); }

}  // namespace cairn
