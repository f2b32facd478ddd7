#include "cairn/base/check.h"
#include "cairn/evict/eviction_policy.h"
#include "cairn/evict/fifo.h"
#include "cairn/evict/lineage.h"
#include "cairn/evict/lru.h"

namespace cairn {

std::string_view to_string(PolicyKind kind) {
  switch (kind) {
    case PolicyKind::kFifo:
      return "fifo";
    case PolicyKind::kLru:
      return "lru";
    case PolicyKind::kLineageTick:
      return "lineage";
    case PolicyKind::kLineageFifo:
      return "lineage-fifo";
  }
  return "unknown";
}

std::optional<PolicyKind> parse_policy(std::string_view name) {
  for (const PolicyKind kind : kAllPolicies) {
    if (to_string(kind) == name) {
      return kind;
    }
  }
  return std::nullopt;
}

Result<std::unique_ptr<EvictionPolicy>> make_policy(PolicyKind kind, const PolicyView& view) {
  switch (kind) {
    case PolicyKind::kFifo:
      return FifoPolicy::create(view);
    case PolicyKind::kLru:
      return LruPolicy::create(view);
    case PolicyKind::kLineageTick:
      return LineagePolicy::create(view, LineagePolicy::Rule::kTick);
    case PolicyKind::kLineageFifo:
      return LineagePolicy::create(view, LineagePolicy::Rule::kFifo);
  }
  return fail(ErrorCode::kInvalidArgument, "no such eviction policy");
}

}  // namespace cairn
