// SlotTable: blocks whose bytes a copy reads, and a look at blocks that changes nothing.
#include <algorithm>
#include <utility>

#include "cairn/base/check.h"
#include "cairn/pool/slot_table.h"

namespace cairn {

SlotTable::Run SlotTable::borrow(std::span<const BlockKey> keys) {
  const MutexLock lock(mutex_);
  expire_due();
  tell_removed();
  Run run = new_run(static_cast<std::uint32_t>(keys.size()));
  for (const BlockKey& key : keys) {
    const BlockId block_id = index_.find(key, index_.place_of(key));
    if (block_id == kNoBlock || at(block_id).is_borrowed) {
      continue;
    }
    at(block_id).is_borrowed = true;
    ++borrowed_;
    borrowed_inactive_ += at(block_id).references == 0 ? 1 : 0;
    run.storage()[run.size()] = block_id;
    run.resize(run.size() + 1);
  }
  if (run.size() == 0) {
    end_run(run);
  }
  return run;
}

// In pieces: whoever allocates meanwhile waits for one of them and not for all.
void SlotTable::give_back(Run& run) {
  constexpr std::size_t kPiece = 16;
  for (std::size_t begin = 0; begin < run.size(); begin += kPiece) {
    const std::span<const BlockId> block_ids =
        std::span<const BlockId>(run.block_ids()).subspan(begin, std::min<std::size_t>(kPiece, run.size() - begin));
    BlockId ready[kPiece];
    std::size_t ready_now = 0;
    const MutexLock lock(mutex_);
    for (const BlockId block_id : block_ids) {
      Record& record = at(block_id);
      borrowed_inactive_ -= record.state == State::kRegistered && record.references == 0 && is_current(record) ? 1 : 0;
      --borrowed_;
      record.is_borrowed = false;
      if (record.state == State::kQuarantined) {
        --quarantined_;
        make_free(block_id);
      } else if (record.is_set_aside) {
        record.is_set_aside = false;
        --set_aside_;
        if (const BlockId idle = let_go(block_id); idle != kNoBlock) {
          ready[ready_now++] = idle;
        }
      }
    }
    if (ready_now > 0) {
      ready_ ? make_ready({ready, ready_now}) : deactivate({ready, ready_now});
    }
    tell_removed();
  }
  const MutexLock lock(mutex_);
  end_run(run);
}

// As the policy's, but for blocks that a copy reads: they are set aside, and others go in their place.
std::size_t SlotTable::evict(ClassRange classes, const Veto& veto, std::span<BlockId> out) {
  std::size_t taken = 0;
  while (true) {
    const std::span<BlockId> room = out.subspan(taken);
    const std::size_t given = policy_->evict(classes, veto, room);
    if (borrowed_inactive_ == 0) {
      return taken + given;
    }
    for (const BlockId block_id : room.first(given)) {
      if (at(block_id).is_borrowed) {
        set_aside(block_id);
      } else {
        out[taken++] = block_id;
      }
    }
    if (given < room.size() || taken == out.size()) {
      return taken;
    }
  }
}

// Requires: inactive, borrowed, and in neither the policy nor the ready queue any more.
void SlotTable::set_aside(BlockId block_id) {
  wake({&block_id, 1});
  at(block_id).references = 1;
  at(block_id).is_set_aside = true;
  ++set_aside_;
}

std::uint32_t SlotTable::count_borrowed(std::span<const BlockId> block_ids) const {
  if (borrowed_ == 0) {
    return 0;
  }
  return static_cast<std::uint32_t>(
      std::count_if(block_ids.begin(), block_ids.end(), [this](BlockId block_id) { return at(block_id).is_borrowed; }));
}

std::vector<std::optional<PeekedBlock>> SlotTable::peek(std::span<const BlockKey> keys) {
  std::vector<std::optional<PeekedBlock>> seen;
  seen.reserve(keys.size());
  const MutexLock lock(mutex_);
  expire_due();
  tell_removed();
  for (const BlockKey& key : keys) {
    const BlockId block_id = index_.find(key, index_.place_of(key));
    if (block_id == kNoBlock) {
      seen.emplace_back();
      continue;
    }
    const BlockId parent = index_.find_parent(key);
    seen.push_back(PeekedBlock{.facts = facts_of(block_id),
                               .parent = parent == kNoBlock ? std::nullopt : std::optional(at(parent).key),
                               .in_use = at(block_id).references > 0});
  }
  return seen;
}

bool SlotTable::contains_parent_of(const BlockKey& key) {
  const MutexLock lock(mutex_);
  expire_due();
  tell_removed();
  return index_.find_parent(key) != kNoBlock;
}

}  // namespace cairn
