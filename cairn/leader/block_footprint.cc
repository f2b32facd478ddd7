#include "cairn/leader/block_footprint.h"

#include <optional>
#include <variant>

namespace cairn {

namespace {

std::uint64_t round_up(std::uint64_t bytes, std::uint64_t unit) { return (bytes + unit - 1) / unit * unit; }

}  // namespace

bool shares_memory(const LeaderOptions& options) {
  return !options.address || !std::holds_alternative<RankAddress::Tcp>(options.address->place);
}

Result<BlockFootprint> footprint_of(const ManagerConfig& config, const LeaderOptions& options) {
  const bool shares = shares_memory(options);
  const KvShape whole = config.shape();
  BlockFootprint footprint;
  for (std::uint32_t rank = 0; rank < options.ranks.count(); ++rank) {
    CAIRN_TRY_ASSIGN(const RankShare share, RankShare::make(options.ranks, rank, whole));
    const bool is_shared = shares && share.heads.replicas > 1;
    if (is_shared && share.heads.replica > 0) {
      continue;
    }
    const std::uint64_t bytes = share.shape(whole).block_bytes();
    footprint.host_bytes += round_up(bytes, is_shared ? kSharedBlockAlignment : host_alignment(config.disk.is_there()));
    footprint.disk.block_bytes += round_up(bytes, kSharedBlockAlignment);
    ++footprint.disk.files;
  }
  return footprint;
}

}  // namespace cairn
