#include "cairn/evict/adaptive.h"
#include "cairn/evict/arc.h"
#include "cairn/evict/eviction_policy.h"
#include "cairn/evict/fifo.h"
#include "cairn/evict/lfu.h"
#include "cairn/evict/lineage.h"
#include "cairn/evict/lru.h"
#include "cairn/evict/multi_lru.h"
#include "cairn/evict/s3_fifo.h"
#include "cairn/evict/slru.h"

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
    case PolicyKind::kLfu:
      return "lfu";
    case PolicyKind::kSlru:
      return "slru";
    case PolicyKind::kArc:
      return "arc";
    case PolicyKind::kS3Fifo:
      return "s3-fifo";
    case PolicyKind::kMultiLru:
      return "multi-lru";
    case PolicyKind::kAdaptive:
      return "adaptive";
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
      return view.leaves_first ? LineagePolicy::create(view, LineagePolicy::Rule::kTick) : LruPolicy::create(view);
    case PolicyKind::kLineageTick:
      return LineagePolicy::create(view, LineagePolicy::Rule::kTick);
    case PolicyKind::kLineageFifo:
      return LineagePolicy::create(view, LineagePolicy::Rule::kFifo);
    case PolicyKind::kLfu:
      return LfuPolicy::create(view);
    case PolicyKind::kSlru:
      return SlruPolicy::create(view);
    case PolicyKind::kArc:
      return ArcPolicy::create(view);
    case PolicyKind::kS3Fifo:
      return S3FifoPolicy::create(view);
    case PolicyKind::kMultiLru:
      return MultiLruPolicy::create(view);
    case PolicyKind::kAdaptive:
      return AdaptivePolicy::create(view);
  }
  return fail(ErrorCode::kInvalidArgument, "no such eviction policy");
}

}  // namespace cairn
