// The tiers below a KvManager.
#include <utility>

#include "cairn/base/str_cat.h"
#include "cairn/sim/kv_manager.h"

namespace cairn::sim {

Status KvManager::attach_offload_engine(const OffloadOptions& options, LinkNetwork& network) {
  if (gate_ != nullptr) {
    return fail(ErrorCode::kAlreadyExists, "the manager has an offload engine; make another manager");
  }
  if (ledger_.pool().counts().registered > 0) {
    return fail(ErrorCode::kFailedPrecondition,
                str_cat("the manager has ", ledger_.pool().counts().registered,
                        " blocks that nothing is known of; attach the offload engine before the first move"));
  }
  Result<std::unique_ptr<OffloadEngine>> engine = OffloadEngine::create(options, {.profile = options_.profile,
                                                                                  .block_size = options_.block_size,
                                                                                  .max_capacity = options_.max_capacity,
                                                                                  .network = &network,
                                                                                  .events = &events_});
  if (!engine) {
    return Unexpected(std::move(engine).error());
  }
  gate_ = std::make_unique<internal::TierGate>(*std::move(engine), ledger_, events_);
  swap_ins_ = std::make_unique<internal::SwapIns>(options_.profile, *gate_, ledger_, events_);
  return {};
}

void KvManager::advance_to(TimePoint now) {
  if (gate_ != nullptr) {
    gate_->engine().advance_to(now);
    swap_ins_->land_finished();
  }
}

std::optional<TimePoint> KvManager::next_event_time() const {
  return gate_ == nullptr ? std::nullopt : gate_->engine().next_event_time();
}

Result<SwapInStart> KvManager::start_swap_in(const Use& wanted) {
  if (Status checked = check(wanted); !checked) {
    return Unexpected(checked.error());
  }
  if (Status checked = check_names(wanted); !checked) {
    return Unexpected(checked.error());
  }
  return gate_ == nullptr ? SwapInStart{} : swap_ins_->start(wanted);
}

Status KvManager::check_names(const Use& use) const {
  if (options_.profile == Profile::kSeed) {
    return {};
  }
  std::size_t number = 0;
  for (const UniqueBlock& block : use.blocks) {
    if (block.is_full()) {
      if (Status checked = internal::check_name(ledger_, block.hash(), use.keys[number++]); !checked) {
        return checked;
      }
    }
  }
  return {};
}

std::vector<LoadId> KvManager::take_landed_swap_ins() {
  return gate_ == nullptr ? std::vector<LoadId>{} : swap_ins_->take_landed();
}

Status KvManager::end_swap_in(LoadId id) {
  if (gate_ == nullptr || !swap_ins_->end(id)) {
    return fail(ErrorCode::kNotFound, str_cat("there is no swap-in ", static_cast<std::uint64_t>(id),
                                              "; end those that were scheduled, once"));
  }
  return {};
}

void KvManager::check_invariants() const {
  ledger_.check_invariants(gate_ == nullptr ? 0 : swap_ins_->reserved());
  if (gate_ != nullptr) {
    gate_->engine().check_invariants();
  }
}

}  // namespace cairn::sim
