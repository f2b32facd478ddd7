#include "examples/engine/scheduler_tiers.h"

#include <algorithm>
#include <utility>

#include "cairn/base/check.h"
#include "cairn/base/str_cat.h"

namespace cairn::engine {
namespace {

std::vector<BlockId> block_ids(std::span<const DeviceBlock> blocks) {
  std::vector<BlockId> ids;
  ids.reserve(blocks.size());
  for (const DeviceBlock block : blocks) {
    ids.push_back(BlockId{block});
  }
  return ids;
}

// A preempted request may have a token that Cairn does not know yet: it is passed with the next iteration. Local tokens
// are reported up to the last token that Cairn knows.
std::size_t known_part(const Request& request, std::size_t local_tokens) {
  return std::min(local_tokens, (request.known_tokens - 1) / kBlockTokens * kBlockTokens);
}

}  // namespace

void SchedulerTiers::refuse(Request& request, const Error& error) {
  request.refused = true;
  if (figures_.refused++ == 0) {
    figures_.refusal = str_cat("request ", request.id, ": ", error.to_string());
  }
}

void SchedulerTiers::add(Request& request) {
  if (connector_ == nullptr) {
    return;
  }
  const auto handle = connector_->add(request.id, {.tokens = request.tokens});
  if (!handle) {
    refuse(request, handle.error());
    return;
  }
  request.handle = *handle;
  request.known_tokens = request.tokens.size();
  requests_[*handle] = &request;
}

SchedulerConnector::Match SchedulerTiers::match(Request& request, std::size_t local_tokens) {
  if (!is_told(request)) {
    return {};
  }
  const auto match = connector_->match(*request.handle, known_part(request, local_tokens));
  if (!match) {
    refuse(request, match.error());
    return {};
  }
  return *match;
}

bool SchedulerTiers::allocated(Request& request, std::size_t local_tokens, std::size_t loaded_tokens) {
  if (!is_told(request)) {
    return loaded_tokens == 0;
  }
  const Status taken = connector_->allocated(*request.handle, block_ids(request.blocks),
                                             known_part(request, local_tokens), loaded_tokens);
  if (!taken) {
    refuse(request, taken.error());
    return loaded_tokens == 0;
  }
  request.known_blocks = request.blocks.size();
  figures_.loads += loaded_tokens > 0 ? 1 : 0;
  return true;
}

void SchedulerTiers::preempt(Request& request) {
  request.known_blocks = 0;
  if (request.handle) {
    preempted_.push_back(*request.handle);
  }
}

void SchedulerTiers::schedule(Request& request, std::size_t tokens) {
  if (is_told(request)) {
    scheduled_.push_back({&request, tokens});
  }
}

Status SchedulerTiers::build(std::uint64_t iteration, std::vector<std::byte>& metadata) {
  if (connector_ == nullptr) {
    return {};
  }
  std::vector<SchedulerConnector::Scheduled> scheduled;
  std::vector<std::vector<BlockId>> new_blocks(scheduled_.size());
  for (std::size_t i = 0; i < scheduled_.size(); ++i) {
    Request& request = *scheduled_[i].request;
    new_blocks[i] = block_ids(std::span(request.blocks).subspan(request.known_blocks));
    scheduled.push_back({.request = *request.handle,
                         .computed_tokens = request.computed,
                         .new_tokens = std::span(request.tokens).subspan(request.known_tokens),
                         .new_blocks = new_blocks[i],
                         .scheduled_tokens = scheduled_[i].tokens});
    request.known_blocks = request.blocks.size();
    request.known_tokens = request.tokens.size();
  }
  const Status built =
      connector_->build({.number = iteration, .preempted = preempted_, .scheduled = scheduled}, metadata);
  figures_.saved_in_step = connector_->saves().in_step;
  scheduled_.clear();
  preempted_.clear();
  for (const auto& refused : connector_->refused()) {
    refuse(*requests_.at(refused.request), refused.error);
  }
  return built;
}

void SchedulerTiers::finish(Request& request, RequestEnding ending, DevicePool& pool) {
  if (request.handle) {
    // Cairn does not know the progress of a request that it refused.
    const auto keeps =
        connector_->finish(*request.handle, request.refused ? std::nullopt : std::optional(request.computed), ending);
    requests_.erase(*request.handle);
    if (keeps && *keeps) {
      kept_[request.id] = std::exchange(request.blocks, {});
    } else if (!keeps) {
      refuse(request, keeps.error());
    }
  }
  pool.release(request.blocks);
  request.blocks.clear();
}

std::vector<SchedulerTiers::Loaded> SchedulerTiers::take_outcomes(DevicePool& pool) {
  if (connector_ == nullptr) {
    return {};
  }
  const SchedulerConnector::Outcomes results = connector_->take_outcomes();
  for (const RequestId& released : results.released) {
    const auto blocks = kept_.extract(released);
    CAIRN_CHECK(!blocks.empty(), "what is released was kept");
    pool.release(blocks.mapped());
  }
  std::vector<Loaded> loaded;
  for (const auto& result : results.loaded) {
    if (const auto found = requests_.find(result.request); found != requests_.end()) {
      loaded.push_back({found->second, result.tokens});
    }
  }
  return loaded;
}

void SchedulerTiers::count_load(std::size_t arrived_tokens, std::size_t missing_tokens) {
  figures_.loaded_tokens += arrived_tokens;
  figures_.missing_tokens += missing_tokens;
}

}  // namespace cairn::engine
