#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <limits>
#include <utility>

#include "cairn/base/deadline.h"
#include "cairn/base/str_cat.h"
#include "cairn/capi/c_boundary.h"
#include "cairn/capi/c_handles.h"

namespace cairn::capi {

namespace {

std::span<const BlockId> as_block_ids(std::span<const uint32_t> numbers) {
  static_assert(sizeof(BlockId) == sizeof(uint32_t));
  return {reinterpret_cast<const BlockId*>(numbers.data()), numbers.size()};
}

template <typename T>
void set_if(T& member, auto given) {
  if (given != 0) {
    member = static_cast<T>(given);
  }
}

Result<SchedulerConnector::Options> read_options(const cairn_scheduler_options& given) {
  if (given.load_mode > CAIRN_LOAD_IN_STEP) {
    return fail(ErrorCode::kInvalidArgument, str_cat("unknown load mode ", given.load_mode));
  }
  CAIRN_TRY_ASSIGN(ManagerConfig config, read_config(given.config, given.config_file, given.use_environment != 0));
  SchedulerConnector::Options options{.manager = std::move(config)};
  options.parts = read_parts(given.offload_filter, given.offload_filter_context, given.offload_filter_limit_us);
  set_if(options.manager.device.blocks, given.device_blocks);
  CAIRN_TRY_ASSIGN(options.ranks.ranks, read_grid(given.ranks, given.pipeline));
  if (given.address != nullptr) {
    CAIRN_TRY_ASSIGN(options.ranks.address, RankAddress::parse(given.address));
  }
  options.ranks.secret = read_text(given.secret);
  options.load = given.load_mode == CAIRN_LOAD_IN_STEP ? LoadMode::kInStep : LoadMode::kAsync;
  set_if(options.loading_blocks, given.loading_blocks);
  set_if(options.least_blocks, given.least_blocks);
  set_if(options.ask_again, given.ask_again);
  set_if(options.in_step_save_blocks, given.in_step_save_blocks);
  set_limit(options.load_deadline, given.load_deadline_ms);
  set_limit(options.save_deadline, given.save_deadline_ms);
  if (given.dp_rank != nullptr) {
    options.manager.dp_rank = *given.dp_rank;
  }
  return options;
}

Result<SchedulerConnector::BlockDigests> read_digests(const uint8_t* digests, std::size_t count, std::size_t size) {
  if (size == 0 && count != 0) {
    return fail(ErrorCode::kInvalidArgument, "digest_size is 0, but there are digests");
  }
  if (size != 0 && count > std::numeric_limits<std::size_t>::max() / size) {
    return fail(ErrorCode::kOutOfRange, str_cat(count, " digests of ", size, " bytes"));
  }
  CAIRN_TRY_ASSIGN(const std::span<const uint8_t> bytes, read_array(digests, count * size, "block_digests"));
  return SchedulerConnector::BlockDigests{.bytes = std::as_bytes(bytes), .size = size};
}

Result<SchedulerConnector::NewRequest> read_new_request(const cairn_new_request& given, const Prompt& prompt) {
  CAIRN_TRY_ASSIGN(const RetentionHint hint, read_hint(given.hint, given.hint_return_ms));
  SchedulerConnector::NewRequest request{.tokens = prompt.tokens, .salt = prompt.salt, .mm_runs = prompt.mm_runs};
  const auto time = [](uint64_t ms) { return ms == 0 ? std::nullopt : std::optional(limited_ms(ms)); };
  if (given.priority != 0) {
    request.priority = given.priority;
  }
  request.priority_duration = time(given.priority_ms);
  request.time_to_live = time(given.time_to_live_ms);
  request.tenant = given.tenant == nullptr ? std::string_view() : given.tenant;
  request.dp_rank = given.dp_rank == nullptr ? std::nullopt : std::optional(*given.dp_rank);
  request.hint = hint;
  CAIRN_TRY_ASSIGN(request.block_digests,
                   read_digests(given.block_digests, given.block_digest_count, given.digest_size));
  return request;
}

cairn_token_counts as_c(const TokenCounts& counts) {
  cairn_token_counts out{};
  out.struct_size = sizeof(out);
  constexpr std::size_t kFirst = offsetof(cairn_token_counts, requests);
  static_assert(sizeof(out) == kFirst + sizeof(counts), "the counts are the same, in the same order");
  std::memcpy(reinterpret_cast<std::byte*>(&out) + kFirst, &counts, sizeof(counts));
  return out;
}

Result<TokenCounts> choose_counts(const TokenReport& report, uint32_t which, const char* tenant) {
  if (which > CAIRN_COUNTS_LAST_TIME) {
    return fail(ErrorCode::kInvalidArgument, str_cat("unknown counts ", which));
  }
  if (tenant == nullptr) {
    return which == CAIRN_COUNTS_TOTAL           ? report.total
           : which == CAIRN_COUNTS_LAST_REQUESTS ? report.last_requests
                                                 : report.last_time;
  }
  if (which != CAIRN_COUNTS_TOTAL) {
    return fail(ErrorCode::kInvalidArgument, "a tenant has no window of its own; ask for CAIRN_COUNTS_TOTAL");
  }
  const auto found = std::ranges::find(report.tenants, std::string_view(tenant), &TokenReport::Tenant::name);
  if (found == report.tenants.end()) {
    return fail(ErrorCode::kNotFound, str_cat("unknown tenant '", tenant, "'; requests.tenants lists them"));
  }
  return found->total;
}

using GroupBlocks = std::vector<std::span<const BlockId>>;

// The blocks of each layer group, which stand one group after the other in `blocks`.
Result<GroupBlocks> read_group_blocks(std::span<const BlockId> blocks, const size_t* counts, std::size_t groups) {
  CAIRN_TRY_ASSIGN(const std::span<const size_t> given, read_array(counts, groups, "block counts"));
  GroupBlocks read;
  for (const size_t count : given) {
    if (count > blocks.size()) {
      return fail(ErrorCode::kOutOfRange, "the blocks of the groups are more than the blocks that are given");
    }
    read.push_back(blocks.first(count));
    blocks = blocks.subspan(count);
  }
  if (!blocks.empty()) {
    return fail(ErrorCode::kOutOfRange, str_cat(blocks.size(), " blocks are beyond those of the last group"));
  }
  return read;
}

// The requests that an iteration schedules, with the runs and blocks that their spans refer to.
struct ReadScheduled {
  std::vector<SchedulerConnector::Scheduled> all;
  std::vector<std::vector<MmRun>> runs;
  std::vector<GroupBlocks> groups;
};

Result<ReadScheduled> read_scheduled(const cairn_scheduled* first, std::size_t count) {
  CAIRN_TRY_ASSIGN(const std::vector<cairn_scheduled> given, read_structs(first, count, "scheduled"));
  ReadScheduled read;
  read.all.reserve(count);
  for (const cairn_scheduled& each : given) {
    SchedulerConnector::Scheduled& scheduled = read.all.emplace_back();
    scheduled.request = RequestHandle{each.request};
    scheduled.computed_tokens = each.computed_tokens;
    CAIRN_TRY_ASSIGN(scheduled.new_tokens, read_array(each.new_tokens, each.new_token_count, "new_tokens"));
    CAIRN_TRY_ASSIGN(const std::span<const uint32_t> blocks,
                     read_array(each.new_blocks, each.new_block_count, "new_blocks"));
    if (each.group_count == 0) {
      scheduled.new_blocks = as_block_ids(blocks);
    } else {
      CAIRN_TRY_ASSIGN(GroupBlocks groups,
                       read_group_blocks(as_block_ids(blocks), each.new_group_block_counts, each.group_count));
      read.groups.push_back(std::move(groups));  // as with runs, below
      scheduled.new_group_blocks = read.groups.back();
    }
    CAIRN_TRY_ASSIGN(scheduled.draft_tokens, read_array(each.draft_tokens, each.draft_token_count, "draft_tokens"));
    scheduled.accepted_draft_tokens = each.accepted_draft_tokens;
    scheduled.scheduled_tokens = each.scheduled_tokens;
    CAIRN_TRY_ASSIGN(scheduled.new_block_digests,
                     read_digests(each.new_block_digests, each.new_block_digest_count, each.digest_size));
    if (each.new_mm_run_count != 0) {
      CAIRN_TRY_ASSIGN(std::vector<MmRun> runs, read_mm_runs(each.new_mm_runs, each.new_mm_run_count));
      read.runs.push_back(std::move(runs));  // a vector that moves keeps its elements where they are
      scheduled.new_runs = read.runs.back();
    }
  }
  return read;
}

}  // namespace

}  // namespace cairn::capi

using namespace cairn;        // NOLINT(google-build-using-namespace): the functions stand outside of it
using namespace cairn::capi;  // NOLINT(google-build-using-namespace)

int32_t cairn_scheduler_create(const cairn_scheduler_options* options, cairn_scheduler** scheduler,
                               cairn_error* error) {
  return guarded(error, [&]() -> Status {
    CAIRN_TRY_ASSIGN(const cairn_scheduler_options given, read_struct(options, "options"));
    if (scheduler == nullptr) {
      return fail(ErrorCode::kInvalidArgument, "scheduler is NULL");
    }
    CAIRN_TRY_ASSIGN(SchedulerConnector::Options read, read_options(given));
    auto handle = std::make_unique<cairn_scheduler>();
    CAIRN_TRY_ASSIGN(handle->connector, SchedulerConnector::make(std::move(read)));
    handle->manager = std::make_unique<cairn_manager>(handle->connector->manager());
    *scheduler = handle.release();
    return {};
  });
}

void cairn_scheduler_destroy(cairn_scheduler* scheduler) { delete scheduler; }

cairn_manager* cairn_scheduler_manager(cairn_scheduler* scheduler) { return scheduler->manager.get(); }

size_t cairn_scheduler_address(const cairn_scheduler* scheduler, char* buffer, size_t capacity, size_t* needed) {
  return guarded_text(buffer, capacity, needed, [&] {
    const std::optional<RankAddress> address = scheduler->connector->address();
    return address ? address->to_string() : std::string();
  });
}

int32_t cairn_scheduler_wait_for_ranks(cairn_scheduler* scheduler, uint64_t longest_ms, cairn_error* error) {
  return guarded(error, [&]() -> Status { return scheduler->connector->wait_for_ranks(limited_ms(longest_ms)); });
}

int32_t cairn_scheduler_add(cairn_scheduler* scheduler, const cairn_new_request* request, cairn_request* handle,
                            cairn_error* error) {
  return guarded(error, [&]() -> Status {
    CAIRN_TRY_ASSIGN(const cairn_new_request given, read_struct(request, "request"));
    if (given.id == nullptr || handle == nullptr) {
      return fail(ErrorCode::kInvalidArgument, given.id == nullptr ? "request.id is NULL" : "handle is NULL");
    }
    CAIRN_TRY_ASSIGN(const Prompt prompt, read_prompt(given.prompt));
    CAIRN_TRY_ASSIGN(const SchedulerConnector::NewRequest read, read_new_request(given, prompt));
    CAIRN_TRY_ASSIGN(const RequestHandle added, scheduler->connector->add(RequestId(std::string(given.id)), read));
    *handle = static_cast<cairn_request>(added);
    return {};
  });
}

cairn_request cairn_scheduler_find(const cairn_scheduler* scheduler, const char* id) {
  return guarded_or(cairn_request{0}, [&] {
    const std::optional<RequestHandle> found =
        id == nullptr ? std::nullopt : scheduler->connector->find(RequestId(std::string(id)));
    return found ? static_cast<cairn_request>(*found) : cairn_request{0};
  });
}

int32_t cairn_scheduler_match(cairn_scheduler* scheduler, cairn_request request, size_t local_tokens, size_t* tokens,
                              int32_t* when, cairn_error* error) {
  return guarded(error, [&]() -> Status {
    if (tokens == nullptr || when == nullptr) {
      return fail(ErrorCode::kInvalidArgument, tokens == nullptr ? "tokens is NULL" : "when is NULL");
    }
    CAIRN_TRY_ASSIGN(const SchedulerConnector::Match match,
                     scheduler->connector->match(RequestHandle{request}, local_tokens));
    *tokens = match.tokens;
    *when = static_cast<int32_t>(match.when);
    return {};
  });
}

int32_t cairn_scheduler_allocated(cairn_scheduler* scheduler, cairn_request request, const uint32_t* blocks,
                                  size_t block_count, size_t local_tokens, size_t loaded_tokens, cairn_error* error) {
  return guarded(error, [&]() -> Status {
    CAIRN_TRY_ASSIGN(const std::span<const uint32_t> given, read_array(blocks, block_count, "blocks"));
    return scheduler->connector->allocated(RequestHandle{request}, as_block_ids(given), local_tokens, loaded_tokens);
  });
}

int32_t cairn_scheduler_allocated_groups(cairn_scheduler* scheduler, cairn_request request, const uint32_t* blocks,
                                         const size_t* block_counts, size_t group_count, size_t local_tokens,
                                         size_t loaded_tokens, cairn_error* error) {
  return guarded(error, [&]() -> Status {
    CAIRN_TRY_ASSIGN(const std::span<const size_t> counts, read_array(block_counts, group_count, "block_counts"));
    size_t total = 0;
    for (const size_t count : counts) {
      if (__builtin_add_overflow(total, count, &total)) {
        return fail(ErrorCode::kOutOfRange, "block_counts add up to more than memory holds");
      }
    }
    CAIRN_TRY_ASSIGN(const std::span<const uint32_t> given, read_array(blocks, total, "blocks"));
    CAIRN_TRY_ASSIGN(const GroupBlocks groups, read_group_blocks(as_block_ids(given), block_counts, group_count));
    return scheduler->connector->allocated_groups(RequestHandle{request}, groups, local_tokens, loaded_tokens);
  });
}

int32_t cairn_scheduler_build(cairn_scheduler* scheduler, const cairn_iteration* iteration, const uint8_t** metadata,
                              size_t* metadata_size, cairn_error* error) {
  return guarded(error, [&]() -> Status {
    CAIRN_TRY_ASSIGN(const cairn_iteration given, read_struct(iteration, "iteration"));
    if (metadata == nullptr || metadata_size == nullptr) {
      return fail(ErrorCode::kInvalidArgument, metadata == nullptr ? "metadata is NULL" : "metadata_size is NULL");
    }
    CAIRN_TRY_ASSIGN(const std::span<const cairn_request> preempted,
                     read_array(given.preempted, given.preempted_count, "preempted"));
    CAIRN_TRY_ASSIGN(const ReadScheduled scheduled, read_scheduled(given.scheduled, given.scheduled_count));
    static_assert(sizeof(RequestHandle) == sizeof(cairn_request));
    const std::span<const RequestHandle> taken(reinterpret_cast<const RequestHandle*>(preempted.data()),
                                               preempted.size());
    SchedulerConnector::Iteration read{.number = given.number, .preempted = taken, .scheduled = scheduled.all};
    if (given.duration_ns != 0) {
      read.duration = limited_ns(given.duration_ns);
    }
    if (given.duration_of != 0) {
      read.duration_of = given.duration_of;
    }
    CAIRN_TRY(scheduler->connector->build(read, scheduler->metadata));
    *metadata = reinterpret_cast<const uint8_t*>(scheduler->metadata.data());
    *metadata_size = scheduler->metadata.size();
    return {};
  });
}

int32_t cairn_scheduler_get_refusals(cairn_scheduler* scheduler, cairn_refusals* refusals, cairn_error* error) {
  return guarded(error, [&]() -> Status {
    scheduler->refused.clear();
    for (const SchedulerConnector::Refused& one : scheduler->connector->refused()) {
      scheduler->refused.push_back(
          {static_cast<cairn_request>(one.request), code_of(one.error.code), one.error.message.c_str()});
    }
    cairn_refusals out{};
    out.refused = scheduler->refused.data();
    out.refused_count = scheduler->refused.size();
    out.refused_stride = sizeof(cairn_refused);
    return write_struct(refusals, out, "refusals");
  });
}

int32_t cairn_scheduler_finish(cairn_scheduler* scheduler, cairn_request request, size_t computed_tokens,
                               uint32_t* held, cairn_error* error) {
  return cairn_scheduler_finish_as(scheduler, request, computed_tokens, CAIRN_ENDING_UNKNOWN, held, error);
}

int32_t cairn_scheduler_finish_as(cairn_scheduler* scheduler, cairn_request request, size_t computed_tokens,
                                  uint32_t ending, uint32_t* held, cairn_error* error) {
  return guarded(error, [&]() -> Status {
    if (held == nullptr) {
      return fail(ErrorCode::kInvalidArgument, "held is NULL");
    }
    CAIRN_TRY_ASSIGN(const RequestEnding given, read_ending(ending));
    CAIRN_TRY_ASSIGN(const bool is_held,
                     scheduler->connector->finish(
                         RequestHandle{request},
                         computed_tokens == CAIRN_NOT_SAID ? std::nullopt : std::optional(computed_tokens), given));
    *held = is_held ? 1 : 0;
    return {};
  });
}

int32_t cairn_scheduler_take_outcomes(cairn_scheduler* scheduler, cairn_outcomes* outcomes, cairn_error* error) {
  return guarded(error, [&]() -> Status {
    CAIRN_TRY(read_struct(outcomes, "outcomes"));  // before anything is taken
    // Outcomes that were taken and not reported, because memory ran out, are reported now.
    SchedulerConnector::Outcomes& taken = scheduler->outcomes;
    if (taken.loaded.empty() && taken.released.empty() && taken.ended.empty()) {
      taken = scheduler->connector->take_outcomes();
    }
    scheduler->loaded.clear();
    for (const SchedulerConnector::Outcomes::Loaded& one : taken.loaded) {
      scheduler->loaded.push_back({static_cast<cairn_request>(one.request), one.tokens, one.missing});
    }
    scheduler->released.clear();
    for (const RequestId& id : taken.released) {
      scheduler->released.push_back(text_of(id));
    }
    scheduler->released_ids.clear();
    for (const std::string& id : scheduler->released) {
      scheduler->released_ids.push_back(id.c_str());
    }
    scheduler->ended.clear();
    for (const SchedulerConnector::Outcomes::Ended& one : taken.ended) {
      scheduler->ended.push_back({static_cast<cairn_request>(one.request), as_c(one.counts)});
    }
    cairn_outcomes out{};
    out.loaded = scheduler->loaded.data();
    out.loaded_count = scheduler->loaded.size();
    out.released = scheduler->released_ids.data();
    out.released_count = scheduler->released_ids.size();
    out.loaded_stride = sizeof(cairn_loaded);
    out.ended = scheduler->ended.data();
    out.ended_count = scheduler->ended.size();
    out.ended_stride = sizeof(cairn_ended);
    CAIRN_TRY(write_struct(outcomes, out, "outcomes"));
    taken = {};
    return {};
  });
}

int32_t cairn_scheduler_get_request_counts(const cairn_scheduler* scheduler, cairn_request request,
                                           cairn_token_counts* counts, cairn_error* error) {
  return guarded(error, [&]() -> Status {
    CAIRN_TRY_ASSIGN(const TokenCounts found, scheduler->connector->counts(RequestHandle{request}));
    return write_struct(counts, as_c(found), "counts");
  });
}

int32_t cairn_scheduler_get_counts(const cairn_scheduler* scheduler, uint32_t which, const char* tenant,
                                   cairn_token_counts* counts, cairn_error* error) {
  return guarded(error, [&]() -> Status {
    CAIRN_TRY_ASSIGN(const TokenCounts found, choose_counts(scheduler->connector->counts(), which, tenant));
    return write_struct(counts, as_c(found), "counts");
  });
}

uint32_t cairn_scheduler_has_work(const cairn_scheduler* scheduler) {
  return guarded_or(1U, [&] {
    const bool has_outcomes = !scheduler->outcomes.loaded.empty() || !scheduler->outcomes.released.empty();
    return has_outcomes || scheduler->connector->has_work() ? 1U : 0U;
  });
}

int32_t cairn_scheduler_saves(const cairn_scheduler* scheduler, cairn_save_status* status, cairn_error* error) {
  return guarded(error, [&]() -> Status {
    const SchedulerConnector::SaveStatus saves = scheduler->connector->saves();
    return write_struct(status,
                        cairn_save_status{.struct_size = sizeof(cairn_save_status),
                                          .asked = saves.asked,
                                          .saved = saves.saved,
                                          .shed = saves.shed,
                                          .paused = saves.paused,
                                          .lost = saves.lost,
                                          .too_short = saves.too_short,
                                          .too_few_uses = saves.too_few_uses,
                                          .would_not_last = saves.would_not_last,
                                          .over_budget = saves.over_budget,
                                          .low_priority = saves.low_priority,
                                          .filtered = saves.filtered,
                                          .no_parent = saves.no_parent},
                        "status");
  });
}

int32_t cairn_scheduler_reset(cairn_scheduler* scheduler, cairn_reset_report* report, cairn_error* error) {
  return reset_and_report(report, error, [&] { return scheduler->connector->reset(); });
}

int32_t cairn_scheduler_invalidate(cairn_scheduler* scheduler, uint64_t weights_generation, cairn_reset_report* report,
                                   cairn_error* error) {
  return reset_and_report(report, error, [&] { return scheduler->connector->invalidate(weights_generation); });
}
