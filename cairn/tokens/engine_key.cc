#include "cairn/tokens/engine_key.h"

#include "cairn/tokens/block_run.h"

namespace cairn {

Result<BlockKey> adopt_hash(NamespaceId ns, const std::optional<BlockKey>& parent, std::uint64_t router_hash,
                            std::uint64_t position) {
  CAIRN_TRY(internal::check_follows(parent, position));
  return BlockKey::make(position, SequenceHash{router_hash ^ value_of(ns)},
                        parent ? parent->sequence_hash() : SequenceHash{0});
}

}  // namespace cairn
