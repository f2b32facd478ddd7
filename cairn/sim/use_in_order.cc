#include "cairn/sim/use_in_order.h"

#include <algorithm>
#include <utility>

#include "cairn/base/check.h"
#include "cairn/sim/block_record.h"
#include "cairn/sim/tier_gate.h"

namespace cairn::sim::internal {

// One Use. `number` is the index of a full block among the full blocks.
class UseInOrder::Walk {
 public:
  Walk(const Use& use, BlockLedger& ledger, EventWriter& events, TierGate* gate, UseInOrder& memory)
      : use_(use), ledger_(ledger), events_(events), gate_(gate), memory_(memory) {
    memory_.pending_.clear();
    memory_.announced_.clear();
    memory_.stored_.clear();
    memory_.stored_tokens_.clear();
    memory_.removed_.clear();
    ledger_.evictions().clear();
    ledger_.reserve(use.keys.size());
    if (use.parent) {
      parent_ = use.parent->hash();
    }
    memory_.full_hashes_.clear();
    if (gate_ != nullptr) {
      for (const UniqueBlock& block : use.blocks) {
        if (block.is_full()) {
          memory_.full_hashes_.push_back(block.hash());
        }
      }
    }
  }

  std::size_t run() {
    std::size_t full = 0;
    bool room = true;
    for (std::size_t i = 0; i < BlockLedger::kAhead; ++i) {
      prefetch(i, i);
    }
    for (std::size_t i = 0; i < use_.blocks.size(); ++i) {
      prefetch(i + BlockLedger::kAhead, full + BlockLedger::kAhead);
      const UniqueBlock& block = use_.blocks[i];
      room = block.is_partial() ? take_partial(block.id()) : take_full(block.hash(), full++);
      if (!room) {
        break;
      }
    }
    room = room && flush();
    std::optional<MutableBlocks> read_first;
    if (gate_ != nullptr && !room) {
      if (ledger_.available() > 0) {
        read_first.emplace(evict_for_the_rest());
        gate_->block();
      } else if (gate_->will_have(use_.blocks.size() - granted_)) {
        gate_->block();
      }
    }
    publish();
    if (read_first) {
      gate_->offload_evictions(*std::move(read_first));
    }
    return granted_;
  }

 private:
  void prefetch(std::size_t block, std::size_t number) const {
    if (number < use_.keys.size()) {
      ledger_.prefetch(use_.keys[number]);
    }
    if (block < use_.blocks.size() && use_.blocks[block].is_full()) {
      ledger_.prefetch(use_.blocks[block].hash());
    }
  }

  // Blocks that can be allocated at once: with tiers below, only free ones.
  [[nodiscard]] std::size_t at_hand() const {
    return gate_ == nullptr ? ledger_.available() : ledger_.pool().counts().free;
  }

  // Evicts for the first block that was not granted, and for all absent ones after it.
  [[nodiscard]] MutableBlocks evict_for_the_rest() {
    MutableBlocks evicted = *ledger_.allocate(1);
    std::size_t full = 0;
    std::size_t more = 0;
    for (std::size_t i = 0; i < use_.blocks.size(); ++i) {
      const UniqueBlock& block = use_.blocks[i];
      bool absent = false;
      if (block.is_full()) {
        absent = ledger_.find(block.hash()) == nullptr && ledger_.find(use_.keys[full]) == kNoBlock;
        ++full;
      } else {
        absent = !ledger_.contains(block.id());
      }
      more += i > granted_ && absent ? 1 : 0;
    }
    MutableBlocks rest = *ledger_.allocate(std::min(more, ledger_.available()));
    CAIRN_CHECK(evicted.append(std::move(rest)).has_value(), "the blocks are of one pool");
    return evicted;
  }

  bool take_partial(PartialId partial) {
    if (!flush()) {
      return false;
    }
    if (!ledger_.contains(partial)) {
      if (at_hand() == 0) {
        return false;
      }
      ledger_.keep(partial, *ledger_.allocate(1));
    }
    ++granted_;
    return true;
  }

  bool take_full(SequenceHash hash, std::size_t number) {
    const auto [block, is_new] = ledger_.announce(hash, static_cast<std::uint32_t>(number));
    if (!is_new) {
      if (!flush()) {  // the block itself may be pending
        return false;
      }
      ledger_.add_reference(*block);
      granted(hash);
      return true;
    }
    Kind kind = kind_of(number);
    if (!may_join_pending(kind, number)) {
      if (!flush()) {
        ledger_.withdraw(hash);
        return false;
      }
      kind = kind_of(number);  // flush() may have evicted it or taken it into use
    }
    if (kind == Kind::kActiveUnderAnotherHash) {
      ledger_.settle(*block, ledger_.find(use_.keys[number]));
      granted(hash);
      return true;
    }
    if (memory_.pending_.empty()) {
      pending_kind_ = kind;
      pending_first_ = number;
      room_ = kind == Kind::kAbsent ? at_hand() : use_.keys.size();
    } else if (memory_.pending_.size() == room_) {  // the pending blocks take all the room
      ledger_.withdraw(hash);
      static_cast<void>(flush());
      return false;
    }
    memory_.pending_.push_back(hash);
    memory_.announced_.push_back(block);
    return true;
  }

  [[nodiscard]] Kind kind_of(std::size_t number) const {
    const BlockId block_id = ledger_.find(use_.keys[number]);
    if (block_id == kNoBlock) {
      return Kind::kAbsent;
    }
    return ledger_.in_use(block_id) ? Kind::kActiveUnderAnotherHash : Kind::kInactive;
  }

  // Blocks with increasing positions have distinct keys.
  [[nodiscard]] bool may_join_pending(Kind kind, std::size_t number) const {
    return memory_.pending_.empty() ||
           (kind == pending_kind_ && use_.keys[number - 1].position() < use_.keys[number].position());
  }

  // Takes the pending blocks as far as there is room; false if there was not room for all.
  bool flush() {
    const std::size_t count = memory_.pending_.size();
    if (count == 0) {
      return true;
    }
    const bool room = pending_kind_ == Kind::kInactive ? pin_pending() : add_pending();
    memory_.pending_.clear();
    memory_.announced_.clear();
    return room;
  }

  bool pin_pending() {
    const std::span<const BlockKey> keys = use_.keys.subspan(pending_first_, memory_.pending_.size());
    const std::span<const BlockId> block_ids = ledger_.pin(keys);
    for (std::size_t i = 0; i < block_ids.size(); ++i) {
      ledger_.settle(*memory_.announced_[i], block_ids[i]);
      granted(memory_.pending_[i]);
    }
    return true;
  }

  bool add_pending() {
    const std::span<const SequenceHash> hashes = memory_.pending_;
    const std::size_t count = std::min(hashes.size(), at_hand());
    if (count > 0) {
      add(count);
    }
    for (const SequenceHash hash : hashes.subspan(count)) {
      ledger_.withdraw(hash);
    }
    return count == hashes.size();
  }

  // Adds the first `count` pending blocks.
  void add(std::size_t count) {
    const std::span<const SequenceHash> hashes = std::span(memory_.pending_).first(count);
    evicted_may_be_back_ = evicted_may_be_back_ || !ledger_.evictions().empty();
    ledger_.add(*ledger_.allocate(count), use_.keys.subspan(pending_first_, count), hashes,
                std::span(memory_.announced_).first(count));
    if (gate_ != nullptr) {
      for (std::size_t i = 0; i < count; ++i) {
        remember(hashes[i], pending_first_ + i);
      }
    }
    if (events_.has_sink()) {
      for (std::size_t i = 0; i < count; ++i) {
        collect_stored(hashes[i], pending_first_ + i);
      }
    }
    granted_ += count;
  }

  void remember(SequenceHash hash, std::size_t number) {
    std::optional<SequenceHash> parent;
    if (number > 0) {
      parent = memory_.full_hashes_[number - 1];
    } else if (use_.parent) {
      parent = use_.parent->hash();
    }
    gate_->remember(record_of(use_, number, hash, parent));
  }

  void collect_stored(SequenceHash hash, std::size_t number) {
    memory_.stored_.push_back({hash, use_.tokens_hashes.empty() ? BlockHash{0} : use_.tokens_hashes[number]});
    if (use_.token_ids) {
      const std::size_t block_size = use_.token_ids->size() / use_.keys.size();
      const std::span<const Token> tokens = use_.token_ids->subspan(number * block_size, block_size);
      memory_.stored_tokens_.insert(memory_.stored_tokens_.end(), tokens.begin(), tokens.end());
    }
  }

  // Counts a block that was there.
  void granted(SequenceHash hash) {
    parent_ = hash;
    ++granted_;
  }

  void publish() {
    events_.stored(
        {.parent = parent_,
         .blocks = memory_.stored_,
         .token_ids = use_.token_ids ? std::optional<std::span<const Token>>(memory_.stored_tokens_) : std::nullopt});
    for (const BlockLedger::Eviction& evicted : ledger_.evictions()) {
      if (const BlockId back = evicted_may_be_back_ ? ledger_.find(evicted.key) : kNoBlock; back != kNoBlock) {
        memory_.removed_.push_back(ledger_.reported_hash(back));
        ledger_.forget(back);
      } else if (!evicted.forgotten) {
        memory_.removed_.push_back(evicted.hash);
      }
    }
    events_.removed(memory_.removed_);
  }

  const Use& use_;
  BlockLedger& ledger_;
  EventWriter& events_;
  TierGate* gate_;
  UseInOrder& memory_;
  std::optional<SequenceHash> parent_;  // the last hit, or the parent of the Use
  std::size_t granted_ = 0;
  bool evicted_may_be_back_ = false;  // blocks were added after the first eviction
  // The pending blocks: consecutive announced full blocks, all inactive or all absent; their hashes are in pending_.
  Kind pending_kind_ = Kind::kAbsent;
  std::size_t pending_first_ = 0;
  std::size_t room_ = 0;  // the most blocks that may be pending
};

std::size_t UseInOrder::run(const Use& use, BlockLedger& ledger, EventWriter& events, TierGate* gate) {
  return Walk(use, ledger, events, gate, *this).run();
}

}  // namespace cairn::sim::internal
