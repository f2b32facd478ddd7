#include <algorithm>
#include <chrono>
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
  Result<ManagerConfig> config = read_config(given.config, given.config_file, given.use_environment != 0);
  if (!config) {
    return Unexpected(std::move(config).error());
  }
  if (given.load_mode > CAIRN_LOAD_IN_STEP) {
    return fail(ErrorCode::kInvalidArgument, str_cat("there is no load mode ", given.load_mode));
  }
  SchedulerConnector::Options options{.manager = *std::move(config)};
  set_if(options.manager.device.blocks, given.device_blocks);
  set_if(options.ranks.ranks, given.ranks);
  if (given.address != nullptr) {
    Result<RankAddress> address = RankAddress::parse(given.address);
    if (!address) {
      return Unexpected(std::move(address).error());
    }
    options.ranks.address = *std::move(address);
  }
  options.ranks.secret = read_text(given.secret);
  options.load = given.load_mode == CAIRN_LOAD_IN_STEP ? LoadMode::kInStep : LoadMode::kAsync;
  set_if(options.loading_blocks, given.loading_blocks);
  set_if(options.least_blocks, given.least_blocks);
  set_if(options.ask_again, given.ask_again);
  set_limit(options.load_deadline, given.load_deadline_ms);
  set_limit(options.save_deadline, given.save_deadline_ms);
  return options;
}

// What an iteration schedules, with the runs that its spans are of.
struct ReadScheduled {
  std::vector<SchedulerConnector::Scheduled> all;
  std::vector<std::vector<MmRun>> runs;
};

Result<ReadScheduled> read_scheduled(const cairn_scheduled* first, std::size_t count) {
  const Result<std::vector<cairn_scheduled>> given = read_structs(first, count, "scheduled");
  if (!given) {
    return Unexpected(given.error());
  }
  ReadScheduled read;
  read.all.reserve(count);
  for (const cairn_scheduled& each : *given) {
    if (each.new_mm_run_count != 0) {
      Result<std::vector<MmRun>> runs = read_mm_runs(each.new_mm_runs, each.new_mm_run_count);
      if (!runs) {
        return Unexpected(std::move(runs).error());
      }
      read.runs.push_back(*std::move(runs));  // a vector that moves keeps its elements where they are
    }
    const Result<std::span<const uint32_t>> tokens = read_array(each.new_tokens, each.new_token_count, "new_tokens");
    const Result<std::span<const uint32_t>> blocks = read_array(each.new_blocks, each.new_block_count, "new_blocks");
    const Result<std::span<const uint32_t>> guesses = read_array(each.guesses, each.guess_count, "guesses");
    for (const auto* array : {&tokens, &blocks, &guesses}) {
      if (!*array) {
        return Unexpected(array->error());
      }
    }
    read.all.push_back({.request = RequestHandle{each.request},
                        .computed_tokens = each.computed_tokens,
                        .new_tokens = *tokens,
                        .new_blocks = as_block_ids(*blocks),
                        .guesses = *guesses,
                        .accepted_guesses = each.accepted_guesses,
                        .scheduled_tokens = each.scheduled_tokens});
    if (each.new_mm_run_count != 0) {
      read.all.back().new_runs = read.runs.back();
    }
  }
  return read;
}

int32_t slot_outcome(const auto& result, cairn_error* error) {
  return result.has_value() ? static_cast<int32_t>(CAIRN_OK) : report(error, result.error().to_error());
}

}  // namespace

}  // namespace cairn::capi

using namespace cairn;        // NOLINT(google-build-using-namespace): the functions stand outside of it
using namespace cairn::capi;  // NOLINT(google-build-using-namespace)

int32_t cairn_scheduler_create(const cairn_scheduler_options* options, cairn_scheduler** scheduler,
                               cairn_error* error) {
  return guarded(error, [&]() -> int32_t {
    const Result<cairn_scheduler_options> given = read_struct(options, "options");
    if (!given || scheduler == nullptr) {
      return given ? report(error, CAIRN_INVALID_ARGUMENT, "scheduler is NULL") : report(error, given.error());
    }
    Result<SchedulerConnector::Options> read = read_options(*given);
    if (!read) {
      return report(error, read.error());
    }
    Result<std::unique_ptr<SchedulerConnector>> made = SchedulerConnector::make(*std::move(read));
    if (!made) {
      return report(error, made.error());
    }
    auto handle = std::make_unique<cairn_scheduler>();
    handle->connector = *std::move(made);
    handle->manager = std::make_unique<cairn_manager>(handle->connector->manager());
    *scheduler = handle.release();
    return CAIRN_OK;
  });
}

void cairn_scheduler_destroy(cairn_scheduler* scheduler) { delete scheduler; }

cairn_manager* cairn_scheduler_manager(cairn_scheduler* scheduler) { return scheduler->manager.get(); }

size_t cairn_scheduler_address(const cairn_scheduler* scheduler, char* buffer, size_t capacity, size_t* needed) {
  return guarded_text(buffer, capacity, needed, [&] {
    const std::optional<RankAddress> address = scheduler->connector->ranks().address();
    return address ? address->to_string() : std::string();
  });
}

int32_t cairn_scheduler_wait_for_ranks(cairn_scheduler* scheduler, uint64_t longest_ms, cairn_error* error) {
  return guarded(error,
                 [&] { return outcome(scheduler->connector->ranks().wait_for_ranks(limited_ms(longest_ms)), error); });
}

int32_t cairn_scheduler_add(cairn_scheduler* scheduler, const char* id, const uint32_t* tokens, size_t token_count,
                            const char* salt, const char* lora_name, cairn_request* request, cairn_error* error) {
  cairn_prompt prompt{};
  prompt.struct_size = sizeof prompt;
  prompt.tokens = tokens;
  prompt.token_count = token_count;
  prompt.salt = salt;
  prompt.lora_name = lora_name;
  return cairn_scheduler_add_prompt(scheduler, id, &prompt, request, error);
}

int32_t cairn_scheduler_add_prompt(cairn_scheduler* scheduler, const char* id, const cairn_prompt* prompt,
                                   cairn_request* request, cairn_error* error) {
  return guarded(error, [&]() -> int32_t {
    if (id == nullptr || request == nullptr) {
      return report(error, CAIRN_INVALID_ARGUMENT, id == nullptr ? "id is NULL" : "request is NULL");
    }
    const Result<Prompt> given = read_prompt(prompt);
    if (!given) {
      return report(error, given.error());
    }
    const SlotResult<RequestHandle> added =
        scheduler->connector->add(RequestId(std::string(id)), given->tokens, given->salt, given->mm_runs);
    if (added) {
      *request = static_cast<cairn_request>(*added);
    }
    return slot_outcome(added, error);
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
  return guarded(error, [&]() -> int32_t {
    const SlotResult<SchedulerConnector::Match> match =
        scheduler->connector->match(RequestHandle{request}, local_tokens);
    if (match) {
      *tokens = match->tokens;
      *when = static_cast<int32_t>(match->when);
    }
    return slot_outcome(match, error);
  });
}

int32_t cairn_scheduler_allocated(cairn_scheduler* scheduler, cairn_request request, const uint32_t* blocks,
                                  size_t block_count, size_t local_tokens, size_t loaded_tokens, cairn_error* error) {
  return guarded(error, [&]() -> int32_t {
    const Result<std::span<const uint32_t>> given = read_array(blocks, block_count, "blocks");
    if (!given) {
      return report(error, given.error());
    }
    return slot_outcome(
        scheduler->connector->allocated(RequestHandle{request}, as_block_ids(*given), local_tokens, loaded_tokens),
        error);
  });
}

int32_t cairn_scheduler_build(cairn_scheduler* scheduler, const cairn_iteration* iteration, const uint8_t** metadata,
                              size_t* metadata_size, cairn_error* error) {
  return guarded(error, [&]() -> int32_t {
    const Result<cairn_iteration> given = read_struct(iteration, "iteration");
    if (!given || metadata == nullptr || metadata_size == nullptr) {
      return given ? report(error, CAIRN_INVALID_ARGUMENT, "metadata or its size is NULL")
                   : report(error, given.error());
    }
    const Result<std::span<const cairn_request>> preempted =
        read_array(given->preempted, given->preempted_count, "preempted");
    const Result<ReadScheduled> scheduled = read_scheduled(given->scheduled, given->scheduled_count);
    if (!preempted || !scheduled) {
      return report(error, !preempted ? preempted.error() : scheduled.error());
    }
    static_assert(sizeof(RequestHandle) == sizeof(cairn_request));
    const std::span<const RequestHandle> taken(reinterpret_cast<const RequestHandle*>(preempted->data()),
                                               preempted->size());
    const Status built = scheduler->connector->build(
        {.number = given->number, .preempted = taken, .scheduled = scheduled->all}, scheduler->metadata);
    if (!built) {
      return report(error, built.error());
    }
    *metadata = reinterpret_cast<const uint8_t*>(scheduler->metadata.data());
    *metadata_size = scheduler->metadata.size();
    return CAIRN_OK;
  });
}

// Of the array that cairn_scheduler_refused() gives out. A struct that grows is copied for it member by member.
static_assert(sizeof(cairn_refused) == 24);

size_t cairn_scheduler_refused(cairn_scheduler* scheduler, const cairn_refused** refused) {
  cairn_refusals refusals{};
  refusals.struct_size = sizeof refusals;
  (void)cairn_scheduler_get_refusals(scheduler, &refusals, nullptr);
  *refused = refusals.refused;
  return refusals.refused_count;
}

int32_t cairn_scheduler_get_refusals(cairn_scheduler* scheduler, cairn_refusals* refusals, cairn_error* error) {
  return guarded(error, [&] {
    scheduler->refused.clear();
    for (const SchedulerConnector::Refused& one : scheduler->connector->refused()) {
      scheduler->refused.push_back(
          {static_cast<cairn_request>(one.request), code_of(one.error.code), one.error.message.c_str()});
    }
    cairn_refusals out{};
    out.refused = scheduler->refused.data();
    out.refused_count = scheduler->refused.size();
    out.refused_stride = sizeof(cairn_refused);
    return outcome(write_struct(refusals, out, "refusals"), error);
  });
}

int32_t cairn_scheduler_finish(cairn_scheduler* scheduler, cairn_request request, size_t computed_tokens,
                               uint32_t* held, cairn_error* error) {
  return guarded(error, [&]() -> int32_t {
    const SlotResult<bool> finished = scheduler->connector->finish(
        RequestHandle{request}, computed_tokens == CAIRN_NOT_SAID ? std::nullopt : std::optional(computed_tokens));
    if (finished) {
      *held = *finished ? 1 : 0;
    }
    return slot_outcome(finished, error);
  });
}

// The size that callers of version 1 step by, whose cairn_results has no loaded_stride: a struct that grows is copied for
// them member by member.
static_assert(sizeof(cairn_loaded) == 24);

int32_t cairn_scheduler_take_results(cairn_scheduler* scheduler, cairn_results* results, cairn_error* error) {
  return guarded(error, [&]() -> int32_t {
    if (const Result<cairn_results> asked = read_struct(results, "results"); !asked) {
      return report(error, asked.error());  // before anything is taken
    }
    // What was taken and could not be told, for want of memory, is told now.
    SchedulerConnector::Results& taken = scheduler->results;
    if (taken.loaded.empty() && taken.released.empty()) {
      taken = scheduler->connector->take_results();
    }
    scheduler->loaded.clear();
    for (const SchedulerConnector::Results::Loaded& one : taken.loaded) {
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
    cairn_results out{};
    out.loaded = scheduler->loaded.data();
    out.loaded_count = scheduler->loaded.size();
    out.released = scheduler->released_ids.data();
    out.released_count = scheduler->released_ids.size();
    out.loaded_stride = sizeof(cairn_loaded);
    const Status written = write_struct(results, out, "results");
    taken = {};
    return outcome(written, error);
  });
}

uint32_t cairn_scheduler_has_work(const cairn_scheduler* scheduler) {
  return guarded_or(1U, [&] {
    const bool has_results = !scheduler->results.loaded.empty() || !scheduler->results.released.empty();
    return has_results || scheduler->connector->has_work() ? 1U : 0U;
  });
}

int32_t cairn_scheduler_reset(cairn_scheduler* scheduler, cairn_reset_report* report, cairn_error* error) {
  return reset_and_report(report, error, [&] { return scheduler->connector->reset(); });
}

int32_t cairn_scheduler_invalidate(cairn_scheduler* scheduler, uint64_t weights_generation, cairn_reset_report* report,
                                   cairn_error* error) {
  return reset_and_report(report, error, [&] { return scheduler->connector->invalidate(weights_generation); });
}
