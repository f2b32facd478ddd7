// Reads bytes as operations on a small block pool, whose invariants must hold after each one.
//
// The keys come from so small a space that different parents have the same fragment and many keys have the same hash,
// which does not happen with real tokens.
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "cairn/base/check.h"
#include "cairn/base/clock.h"
#include "cairn/pool/block_pool.h"

namespace cairn {
namespace {

class Input {
 public:
  explicit Input(std::span<const std::uint8_t> bytes) : bytes_(bytes) {}
  [[nodiscard]] bool done() const { return bytes_.empty(); }
  // 0 at the end of the input.
  std::uint32_t below(std::uint32_t end) {
    if (bytes_.empty()) {
      return 0;
    }
    const std::uint32_t byte = bytes_.front();
    bytes_ = bytes_.subspan(1);
    return byte % end;
  }

 private:
  std::span<const std::uint8_t> bytes_;
};

// Counts resident blocks from the events.
class Follower final : public PoolObserver {
 public:
  void on_registered(CacheLevel, std::span<const ResidentBlock> blocks, std::span<const Token>) override {
    resident_ += static_cast<std::uint32_t>(blocks.size());
  }
  void on_removed(CacheLevel, std::span<const BlockKey> keys) override {
    CAIRN_CHECK(keys.size() <= resident_, "no more blocks are removed than were registered");
    resident_ -= static_cast<std::uint32_t>(keys.size());
  }
  void on_cleared(CacheLevel) override { resident_ = 0; }
  void on_matched(CacheLevel, std::span<const BlockKey>) override {}
  [[nodiscard]] std::uint32_t resident() const { return resident_; }

 private:
  std::uint32_t resident_ = 0;
};

class Player {
 public:
  explicit Player(Input& input) : input_(input) {
    BlockPoolOptions options;
    options.capacity = 1 + input_.below(16);
    options.block_size = 1 + input_.below(3);
    options.policy = kAllPolicies[input_.below(std::size(kAllPolicies))];
    options.duplicates = input_.below(2) == 0 ? Duplicates::kReject : Duplicates::kAllow;
    options.time_to_live = input_.below(2) == 0;
    options.hints = input_.below(2) == 0;
    options.leaves_first = input_.below(2) == 0;
    options.reset_on_release = input_.below(8) == 0;
    for (std::uint32_t tenants = input_.below(4); tenants > 0; --tenants) {
      TenantQuota quota{.name = "tenant", .reserved = input_.below(6)};
      if (input_.below(2) == 0) {
        quota.limit = input_.below(16);
      }
      options.tenants.push_back(quota);
    }
    if (input_.below(4) == 0) {
      options.may_evict = [this](BlockId, const BlockKey& key) {
        return value_of(key.sequence_hash()) % 4 != refused_;
      };
    }
    options.low_water = input_.below(2) == 0 ? input_.below(options.capacity + 1) : 0;
    options.clock = &clock_;
    options.observers = {&follower_};
    if (Result<std::unique_ptr<BlockPool>> pool = BlockPool::create(options)) {
      pool_ = *std::move(pool);
    }
  }

  void play() {
    while (pool_ != nullptr && !input_.done()) {
      step();
      pool_->check_invariants();
      const PoolCounts counts = pool_->counts();
      CAIRN_CHECK(counts.free + counts.inactive + counts.active + counts.quarantined == counts.total, "counts add up");
      CAIRN_CHECK(counts.registered == follower_.resident(), "the events agree with the pool");
    }
  }

 private:
  std::vector<BlockKey> keys(std::uint32_t count) {
    std::vector<BlockKey> keys;
    const std::uint32_t first = input_.below(3);
    for (std::uint32_t i = 0; i < count; ++i) {
      const std::uint32_t seed = input_.below(64);
      const std::uint32_t position = (first + i) % 5 + (seed / 32) * 254;
      // High bits that neither the index's hash nor a child's fragment sees.
      const std::uint64_t high = (seed & 1) != 0 ? std::uint64_t{1} << 63 : 0;
      keys.push_back(BlockKey::make_checked(position, SequenceHash{high | (seed / 2 % 4)}, SequenceHash{seed / 8 % 4}));
    }
    return keys;
  }

  Retention retention() {
    Retention retention{.priority = input_.below(103)};
    if (input_.below(2) == 0) {
      retention.time_to_live = std::chrono::milliseconds(input_.below(5));
    }
    if (input_.below(4) == 0) {
      retention.priority_duration = std::chrono::milliseconds(input_.below(5));
    }
    return retention;
  }

  template <typename T>
  std::optional<typename std::list<T>::iterator> pick(std::list<T>& list) {
    if (list.empty()) {
      return std::nullopt;
    }
    auto at = list.begin();
    std::advance(at, input_.below(static_cast<std::uint32_t>(list.size())));
    return at;
  }

  void complete() {
    const auto at = pick(writing_);
    if (!at) {
      return;
    }
    const std::vector<BlockKey> names = keys((*at)->size() + (input_.below(8) == 0 ? 1 : 0));
    const std::vector<BlockHash> hashes(input_.below(4) == 0 ? names.size() : 0);
    BlockNames all{.keys = names, .tokens_hashes = hashes};
    if (input_.below(4) == 0) {
      all.parent = SequenceHash{input_.below(4)};
    }
    if (auto complete = std::move(**at).complete(all)) {
      named_.push_back(*std::move(complete));
      writing_.erase(*at);
    } else {
      MutableBlocks back = std::move(complete.error().blocks);
      writing_.erase(*at);
      writing_.push_back(std::move(back));
    }
  }

  void register_blocks() {
    const auto at = pick(named_);
    if (!at) {
      return;
    }
    const std::vector<Token> tokens(input_.below(2) == 0 ? (*at)->size() * pool_->block_size() : 0);
    if (auto registered = std::move(**at).register_blocks(retention(), tokens)) {
      held_.push_back(*std::move(registered));
      named_.erase(*at);
    } else {
      CompleteBlocks back = std::move(registered.error().blocks);
      named_.erase(*at);
      if (input_.below(2) == 0) {
        writing_.push_back(std::move(back).reset());
      }
    }
  }

  void use_held() {
    const auto at = pick(held_);
    if (!at) {
      return;
    }
    switch (input_.below(10)) {
      case 8:
        std::move(**at).release_as_victims();
        return static_cast<void>(held_.erase(*at));
      case 0:
        return held_.push_back((*at)->share(input_.below(5)));
      case 1:
        return (*at)->release_tail(input_.below(5));
      case 2:
        return weak_.push_back((*at)->downgrade());
      case 3:
        return pinned_.push_back((*at)->pin());
      case 4:
        return (*at)->reset_on_release(input_.below(2) == 0);
      case 5:
        return static_cast<void>((*at)->set_retention(retention()));
      default:
        held_.erase(*at);
    }
  }

  void step() {
    switch (input_.below(22)) {
      case 0:
      case 1:
        if (auto blocks = pool_->allocate(input_.below(8), TenantId{static_cast<std::uint8_t>(input_.below(4))})) {
          writing_.push_back(*std::move(blocks));
        }
        return;
      case 2:
      case 3:
        return complete();
      case 4:
      case 5:
        return register_blocks();
      case 6:
        return held_.push_back(pool_->match_prefix(keys(input_.below(6))));
      case 7:
        return held_.push_back(pool_->match_scattered(keys(input_.below(6))).blocks);
      case 8:
      case 9:
        return use_held();
      case 10:
        if (const auto at = pick(weak_)) {
          if (std::optional<ImmutableBlocks> blocks = (*at)->upgrade()) {
            held_.push_back(*std::move(blocks));
          }
          weak_.erase(*at);
        }
        return;
      case 11:
        if (const auto at = pick(pinned_)) {
          pinned_.erase(*at);
        }
        return;
      case 12:
        if (const auto at = pick(writing_)) {
          QuarantinedBlocks quarantined = std::move(**at).quarantine();
          writing_.erase(*at);
          if (input_.below(8) != 0) {
            std::move(quarantined).release_proven_finished();
          }
        }
        return;
      case 13:
        return static_cast<void>(pool_->reset(keys(input_.below(6))));
      case 14:
        if (input_.below(4) == 0) {
          pool_->reset_inactive();
        } else {
          const auto kind = static_cast<RetentionHint::Kind>(input_.below(4));
          const Duration in = std::chrono::milliseconds(std::int32_t(input_.below(16)) - 1);
          (void)pool_->hint(keys(input_.below(6)), {.kind = kind, .in = in});
        }
        return;
      case 15:
        return held_.push_back(pool_->claim_victims(input_.below(6)));
      case 16:
        return pool_->claim_victims(input_.below(6)).release_as_victims();
      case 17:
        return pinned_.push_back(pool_->hold(keys(input_.below(6))));
      case 18:
        return static_cast<void>(pool_->discard(keys(input_.below(4))));
      case 19:
        return lent_.push_back(pool_->borrow(keys(input_.below(6))));
      case 20:
        if (const auto at = pick(lent_)) {
          lent_.erase(*at);
        }
        return;
      default:
        clock_.advance(std::chrono::milliseconds(input_.below(4)));
        refused_ = input_.below(6);
    }
  }

  Input& input_;
  ManualClock clock_;
  Follower follower_;
  std::uint32_t refused_ = 0;
  std::unique_ptr<BlockPool> pool_;
  std::list<MutableBlocks> writing_;
  std::list<CompleteBlocks> named_;
  std::list<ImmutableBlocks> held_;
  std::list<WeakBlocks> weak_;
  std::list<PinnedBlocks> pinned_;
  std::list<BorrowedBlocks> lent_;
};

}  // namespace
}  // namespace cairn

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  cairn::Input input({data, size});
  cairn::Player(input).play();
  return 0;
}
