#include "cairn/onboard/onboard_plan.h"

#include <algorithm>

namespace cairn {

namespace {

using Part = LoadPlan::Part;

LoadRun describe(const KeyRun& run, const LoadLinks& links, const LoadCosts& costs) {
  LoadRun described{.from = *run.tier, .blocks = run.blocks};
  if (run.tier == CacheLevel::kG1) {
    return described;
  }
  // The bytes of joined blocks are among those ahead.
  described.block_bytes = run.joined_at ? 0 : costs.block_bytes;
  const auto use = [&](LoadLink link) {
    const LinkSpeed& speed = costs.speeds[index_of(link)];
    described.bytes_per_second = speed.bytes_per_second;
    described.bytes_ahead = speed.bytes_ahead;
    const bool is_measured = speed.is_old && !(link == LoadLink::kDiskToHost && costs.may_prefetch);
    if ((speed.bytes_per_second <= 0 || is_measured) && speed.bytes_ahead == 0 && described.block_bytes > 0) {
      described.probe_blocks = probe_blocks(costs.block_bytes);
    }
  };
  const LoadLink to_host = run.tier == CacheLevel::kG4 ? LoadLink::kRemoteToHost : LoadLink::kDiskToHost;
  if (run.tier == CacheLevel::kG2) {
    use(LoadLink::kHostToDevice);
  } else if (run.tier == CacheLevel::kG3 && links.disk_to_device && !links.goes_through_host()) {
    use(LoadLink::kDiskToDevice);
  } else {
    // Both links work at once: the slower one counts, and the first or last part is alone on the other.
    const double below = costs.speeds[index_of(to_host)].bytes_per_second;
    const double host = costs.speeds[index_of(LoadLink::kHostToDevice)].bytes_per_second;
    const bool is_host_slower = below > 0 && host > 0 && host < below;
    use(is_host_slower ? LoadLink::kHostToDevice : to_host);
    if (below > 0 && host > 0) {
      const double part = static_cast<double>(described.block_bytes) * std::min(run.blocks, costs.max_part_blocks);
      described.latency_seconds = part / std::max(below, host);
    }
  }
  return described;
}

void add_run(LoadPlan& plan, const LoadPlanRequest& request, const KeyRun& run, const LoadLinks& links) {
  Part part{.first = plan.end, .count = run.blocks, .from = *run.tier};
  if (run.joined_at) {
    part.kind = Part::Kind::kJoined;
    part.joined_at = *run.joined_at;
  } else if (run.tier == CacheLevel::kG1 || (request.is_prefetch && run.tier == CacheLevel::kG2)) {
    part.kind = Part::Kind::kPresent;
  } else {
    part.kind = Part::Kind::kCopied;
    if (run.tier == CacheLevel::kG3) {
      part.through_host = !request.is_prefetch && links.goes_through_host();
      part.link = request.is_prefetch || part.through_host ? LoadLink::kDiskToHost : LoadLink::kDiskToDevice;
    } else if (run.tier == CacheLevel::kG4) {
      part.through_host = !request.is_prefetch;
      part.link = LoadLink::kRemoteToHost;
    }
  }
  // Small parts, so that the links to the host and from it work at once and the host's pool is not filled.
  const bool is_cut =
      part.kind == Part::Kind::kCopied && (part.link == LoadLink::kDiskToHost || part.link == LoadLink::kRemoteToHost);
  const std::uint32_t most = is_cut ? std::max(request.max_part_blocks, 1U) : run.blocks;
  for (std::uint32_t left = run.blocks; left > 0; left -= part.count) {
    part.first = plan.end;
    part.count = std::min(left, most);
    plan.parts.push_back(part);
    plan.end += part.count;
  }
}

// The end of the keys if no more than `max_blocks` are loaded.
std::uint32_t end_within(const LoadPlan& plan, std::uint32_t max_blocks) {
  std::uint32_t left = max_blocks;
  for (const Part& part : plan.parts) {
    if (part.from == CacheLevel::kG1) {
      continue;
    }
    if (part.count > left) {
      return part.first + left;
    }
    left -= part.count;
  }
  return plan.end;
}

}  // namespace

void LoadPlan::cut(std::uint32_t at) {
  end = std::min(end, at);
  std::erase_if(parts, [at](const Part& part) { return part.first >= at; });
  if (!parts.empty()) {
    parts.back().count = std::min(parts.back().count, at - parts.back().first);
  }
}

std::uint32_t LoadPlan::blocks_to_bring() const {
  std::uint32_t blocks = 0;
  for (const Part& part : parts) {
    blocks += part.kind != Part::Kind::kPresent ? part.count : 0;
  }
  return blocks;
}

LoadPlan plan_load(const LoadPlanRequest& request, std::span<const KeyRun> runs, const LoadLinks& links,
                   const LoadCosts& costs) {
  LoadPlan plan{.end = request.first};
  std::size_t used = 0;
  for (; used < runs.size(); ++used) {
    const KeyRun& run = runs[used];
    if (run.tier) {
      add_run(plan, request, run, links);
    } else if (request.is_prefix) {
      break;
    } else {
      plan.end += run.blocks;
    }
  }
  plan.found = plan.end;
  const std::uint32_t blocks = plan.found - request.first;
  if (request.is_prefix && blocks > 0) {
    plan.not_worth_it = blocks - std::min(worth_loading(runs.first(used), links, costs), blocks);
  }
  std::uint32_t end = plan.found - plan.not_worth_it;
  if (request.max_blocks > 0) {
    end = std::min(end, end_within(plan, request.max_blocks));
  }
  plan.cut(end);
  return plan;
}

std::uint32_t worth_loading(std::span<const KeyRun> runs, const LoadLinks& links, const LoadCosts& costs) {
  std::vector<LoadRun> described;
  described.reserve(runs.size());
  std::uint32_t blocks = 0;
  for (const KeyRun& run : runs) {
    described.push_back(describe(run, links, costs));
    blocks += run.blocks;
  }
  if (costs.model == nullptr || blocks == 0) {
    return blocks;
  }
  return std::min(blocks, costs.model->worth_loading({.runs = described,
                                                      .block_size = costs.block_size,
                                                      .first_token = costs.first_token,
                                                      .total_tokens = costs.total_tokens,
                                                      .engine_is_busy = costs.engine_is_busy}));
}

}  // namespace cairn
