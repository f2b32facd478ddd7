#include <algorithm>
#include <chrono>
#include <utility>

#include "cairn/base/deadline.h"
#include "cairn/base/str_cat.h"
#include "cairn/capi/c_boundary.h"
#include "cairn/capi/c_handles.h"
#include "cairn/capi/status_json.h"
#include "cairn/tokens/hashes.h"

namespace cairn::capi {

namespace {

Unexpected<Error> no_tier(CacheLevel level) {
  return fail(ErrorCode::kNotFound, str_cat("the manager has no tier ", to_string(level), "; configure its size"));
}

Result<BlockPool*> pool_of(const cairn_manager* manager, uint32_t level) {
  CAIRN_TRY_ASSIGN(const CacheLevel read, read_level(level));
  BlockPool* const pool = manager->manager.pool(read);
  if (pool == nullptr) {
    return no_tier(read);
  }
  return pool;
}

// NULL if there are no blocks.
cairn_blocks* handle_of(ImmutableBlocks blocks) {
  return blocks.empty() ? nullptr : new cairn_blocks{std::move(blocks)};
}

Result<Retention> read_retention(const cairn_retention* retention) {
  Retention read;
  if (retention == nullptr) {
    return read;
  }
  CAIRN_TRY_ASSIGN(const cairn_retention given, read_struct(retention, "retention"));
  if (given.priority != 0) {
    read.priority = given.priority;
  }
  if (given.priority_ms != 0) {
    read.priority_duration = limited_ms(given.priority_ms);
  }
  if (given.time_to_live_ms != 0) {
    read.time_to_live = limited_ms(given.time_to_live_ms);
  }
  return read;
}

Status check_index(std::string_view name, uint32_t index, uint32_t count) {
  return index < count ? Status()
                       : fail(ErrorCode::kOutOfRange,
                              str_cat(name, " ", index, " is out of range; the tier has ", count, ", counted from 0"));
}

}  // namespace

Result<ManagerConfig> read_config(const char* text, const char* file, bool use_environment) {
  if (text != nullptr && file != nullptr) {
    return fail(ErrorCode::kInvalidArgument, "both config and config_file are given; give one of them");
  }
  ConfigSources sources;
  if (text != nullptr) {
    sources.toml = text;
  }
  sources.file = read_text(file);
  if (use_environment) {
    sources.environment = ManagerConfig::environment_of_process();
  }
  return cairn::read_config(sources);
}

}  // namespace cairn::capi

using namespace cairn;        // NOLINT(google-build-using-namespace): the C functions are outside of the namespace
using namespace cairn::capi;  // NOLINT(google-build-using-namespace)

uint32_t cairn_api_version(void) { return CAIRN_API_VERSION; }
const char* cairn_version(void) { return CAIRN_VERSION; }

const char* cairn_code_name(int32_t code) {
  if (code == CAIRN_OK) {
    return "ok";
  }
  // to_string() returns literals, which end with a 0.
  return code < CAIRN_OK || code > CAIRN_CANCELLED ? "unknown" : to_string(static_cast<ErrorCode>(code - 1)).data();
}

int32_t cairn_manager_create(const cairn_manager_options* options, cairn_manager** manager, cairn_error* error) {
  return guarded(error, [&]() -> Status {
    CAIRN_TRY_ASSIGN(const cairn_manager_options given, read_struct(options, "options"));
    if (manager == nullptr) {
      return fail(ErrorCode::kInvalidArgument, "manager is NULL; pass the address of a cairn_manager*");
    }
    CAIRN_TRY_ASSIGN(const ManagerConfig config,
                     read_config(given.config, given.config_file, given.use_environment != 0));
    CAIRN_TRY_ASSIGN(KvBlockManager made,
                     KvBlockManager::make(config, read_parts(given.offload_filter, given.offload_filter_context,
                                                             given.offload_filter_limit_us)));
    *manager = new cairn_manager(std::move(made));
    return {};
  });
}

void cairn_manager_destroy(cairn_manager* manager) { delete manager; }

uint32_t cairn_manager_block_size(const cairn_manager* manager) { return manager->manager.block_size(); }

int32_t cairn_manager_hash_prompt(const cairn_manager* manager, const cairn_prompt* prompt, cairn_key* keys,
                                  size_t capacity, size_t* count, cairn_error* error) {
  return guarded(error, [&]() -> Status {
    CAIRN_TRY_ASSIGN(Prompt given, read_prompt(prompt));
    if (count == nullptr || (keys == nullptr && capacity != 0)) {
      return fail(ErrorCode::kInvalidArgument,
                  count == nullptr ? "count is NULL" : str_cat("keys is NULL, but capacity is ", capacity));
    }
    const uint32_t block_size = manager->manager.block_size();
    const std::size_t blocks = given.tokens.size() / block_size;
    *count = blocks;
    if (blocks > capacity) {
      return fail(ErrorCode::kOutOfRange, str_cat("the prompt has ", blocks, " full blocks, but keys has room for ",
                                                  capacity, "; pass a larger array"));
    }
    std::ranges::sort(given.mm_runs, {}, &MmRun::offset);
    std::vector<BlockKey> made(blocks);
    CAIRN_TRY(hash_blocks(given.tokens, block_size, manager->manager.hasher().with(given.salt), std::nullopt, made, {},
                          given.mm_runs));
    std::ranges::transform(made, keys, [](const BlockKey& key) { return cairn_key{key.high_word(), key.low_word()}; });
    return {};
  });
}

int32_t cairn_manager_locate(const cairn_manager* manager, const cairn_key* keys, size_t count, uint8_t* levels,
                             size_t* found, cairn_error* error) {
  return guarded(error, [&]() -> Status {
    CAIRN_TRY_ASSIGN(const std::vector<BlockKey> read, read_keys(keys, count));
    const PrefixLocation location = manager->manager.locate(read);
    for (std::size_t i = 0; levels != nullptr && i < location.levels.size(); ++i) {
      levels[i] = static_cast<uint8_t>(location.levels[i]);
    }
    if (found != nullptr) {
      *found = location.levels.size();
    }
    return {};
  });
}

int32_t cairn_manager_allocate(cairn_manager* manager, uint32_t level, uint32_t count, cairn_blocks** blocks,
                               cairn_error* error) {
  return guarded(error, [&]() -> Status {
    CAIRN_TRY_ASSIGN(BlockPool* const pool, pool_of(manager, level));
    CAIRN_TRY_ASSIGN(MutableBlocks allocated, pool->allocate(count));
    *blocks = new cairn_blocks{std::move(allocated)};
    return {};
  });
}

int32_t cairn_blocks_register(cairn_blocks* blocks, const cairn_key* keys, size_t count,
                              const cairn_retention* retention, cairn_error* error) {
  return guarded(error, [&]() -> Status {
    CAIRN_TRY_ASSIGN(const Retention kept, read_retention(retention));
    auto* const filled = std::get_if<MutableBlocks>(&blocks->blocks);
    if (filled == nullptr) {
      return fail(ErrorCode::kFailedPrecondition, "the blocks are already registered");
    }
    CAIRN_TRY_ASSIGN(const std::vector<BlockKey> read, read_keys(keys, count));
    Result<CompleteBlocks, Rejected<MutableBlocks>> complete = std::move(*filled).complete({.keys = read});
    if (!complete) {
      blocks->blocks.emplace<MutableBlocks>(std::move(complete.error().blocks));
      return Unexpected(std::move(complete.error().error));
    }
    try {
      auto registered = (*std::move(complete)).register_blocks(kept);
      if (!registered) {
        blocks->blocks.emplace<MutableBlocks>(std::move(registered.error().blocks).reset());
        return Unexpected(std::move(registered.error().error));
      }
      blocks->blocks.emplace<ImmutableBlocks>(*std::move(registered));
    } catch (...) {
      blocks->blocks.emplace<MutableBlocks>((*std::move(complete)).reset());  // the caller still has them
      throw;
    }
    return {};
  });
}

int32_t cairn_manager_match(cairn_manager* manager, uint32_t level, const cairn_key* keys, size_t count,
                            cairn_blocks** blocks, cairn_error* error) {
  return guarded(error, [&]() -> Status {
    CAIRN_TRY_ASSIGN(BlockPool* const pool, pool_of(manager, level));
    CAIRN_TRY_ASSIGN(const std::vector<BlockKey> read, read_keys(keys, count));
    *blocks = handle_of(pool->match_prefix(read));
    return {};
  });
}

int32_t cairn_manager_match_scattered(cairn_manager* manager, uint32_t level, const cairn_key* keys, size_t count,
                                      uint32_t* positions, cairn_blocks** blocks, cairn_error* error) {
  return guarded(error, [&]() -> Status {
    CAIRN_TRY_ASSIGN(BlockPool* const pool, pool_of(manager, level));
    CAIRN_TRY_ASSIGN(const std::vector<BlockKey> read, read_keys(keys, count));
    ScatteredMatch match = pool->match_scattered(read);
    *blocks = handle_of(std::move(match.blocks));
    for (std::size_t i = 0; positions != nullptr && i < match.position.size(); ++i) {
      positions[i] = match.position[i].value_or(CAIRN_NO_POSITION);
    }
    return {};
  });
}

int32_t cairn_manager_worth_loading(const cairn_manager* manager, const cairn_key* keys, size_t count,
                                    uint32_t first_block, uint32_t* blocks, cairn_error* error) {
  return guarded(error, [&]() -> Status {
    CAIRN_TRY_ASSIGN(const std::vector<BlockKey> read, read_keys(keys, count));
    *blocks = manager->manager.worth_loading(manager->manager.locate(read), {.first_block = first_block}).blocks;
    return {};
  });
}

int32_t cairn_manager_load(cairn_manager* manager, const cairn_key* keys, size_t count, uint64_t deadline_ms,
                           cairn_blocks** blocks, cairn_error* error) {
  return guarded(error, [&]() -> Status {
    LoadRequest request;
    CAIRN_TRY_ASSIGN(request.keys, read_keys(keys, count));
    if (deadline_ms != 0) {
      request.deadline = deadline_after(steady_clock().now(), limited_ms(deadline_ms));
    }
    OutcomeWaiter<LoadOutcome> waiter(manager->manager);
    request.done = waiter.done();
    CAIRN_TRY(manager->manager.load(std::move(request)));
    CAIRN_TRY_ASSIGN(LoadOutcome loaded, waiter.wait());
    *blocks = handle_of(std::move(loaded.blocks));
    return {};
  });
}

namespace {

std::span<const BlockId> block_ids_of(const cairn_blocks* blocks) {
  return std::visit([](const auto& run) -> std::span<const BlockId> { return run.block_ids(); }, blocks->blocks);
}

}  // namespace

size_t cairn_blocks_count(const cairn_blocks* blocks) { return blocks == nullptr ? 0 : block_ids_of(blocks).size(); }

size_t cairn_blocks_ids(const cairn_blocks* blocks, uint32_t* block_ids, size_t capacity) {
  if (blocks == nullptr) {
    return 0;
  }
  const std::span<const BlockId> all = block_ids_of(blocks);
  for (const BlockId block_id : all.first(std::min(all.size(), capacity))) {
    *block_ids++ = index_of(block_id);
  }
  return all.size();
}

void cairn_blocks_release(cairn_blocks* blocks) { delete blocks; }

int32_t cairn_manager_address(const cairn_manager* manager, uint32_t level, uint32_t block_id, uint32_t layer,
                              uint32_t k_or_v, uint32_t token, uint32_t head, void** address, cairn_error* error) {
  return guarded(error, [&]() -> Status {
    CAIRN_TRY_ASSIGN(const CacheLevel read, read_level(level));
    const BlockLayoutPtr layout = manager->manager.layout(read);
    if (layout == nullptr) {
      return no_tier(read);
    }
    const KvShape& shape = layout->shape();
    CAIRN_TRY(check_index("block_id", block_id, layout->blocks()));
    CAIRN_TRY(check_index("layer", layer, shape.layers));
    CAIRN_TRY(check_index("k_or_v", k_or_v, shape.kv));
    CAIRN_TRY(check_index("token", token, shape.page_size));
    CAIRN_TRY(check_index("head", head, shape.heads));
    const BlockLayout::Address at = layout->address(block_id, layer, k_or_v, token, head);
    std::byte* const base = layout->regions()[at.region]->base();
    if (base == nullptr) {
      return fail(ErrorCode::kFailedPrecondition,
                  str_cat("blocks of ", to_string(read), " have no address: they are in a file or in other processes"));
    }
    *address = base + at.offset;
    return {};
  });
}

int32_t cairn_manager_reset(cairn_manager* manager, uint32_t level, uint32_t* count, cairn_error* error) {
  return guarded(error, [&]() -> Status {
    CAIRN_TRY_ASSIGN(const CacheLevel read, read_level(level));
    CAIRN_TRY_ASSIGN(const ResetReport done, manager->manager.reset(read));
    if (count != nullptr) {
      *count = done.reset;
    }
    return {};
  });
}

int32_t cairn_manager_reset_all(cairn_manager* manager, cairn_reset_report* report, cairn_error* error) {
  return reset_and_report(report, error, [&] { return manager->manager.reset_all(); });
}

int32_t cairn_manager_invalidate(cairn_manager* manager, uint64_t weights_generation, cairn_reset_report* report,
                                 cairn_error* error) {
  return reset_and_report(report, error, [&] { return manager->manager.invalidate(weights_generation); });
}

int32_t cairn_manager_reset_keys(cairn_manager* manager, uint32_t level, const cairn_key* keys, size_t count,
                                 cairn_keys_reset* outcome, cairn_error* error) {
  return guarded(error, [&]() -> Status {
    CAIRN_TRY_ASSIGN(const CacheLevel read, read_level(level));
    CAIRN_TRY(pool_of(manager, level));
    CAIRN_TRY_ASSIGN(const std::vector<BlockKey> names, read_keys(keys, count));
    if (outcome != nullptr) {
      CAIRN_TRY(read_struct(outcome, "outcome"));  // before anything is reset
    }
    const ResetOutcome done = manager->manager.reset(read, names);
    if (outcome == nullptr) {
      return {};
    }
    cairn_keys_reset out{};
    out.reset = done.reset;
    out.not_found = done.not_found;
    out.in_use = done.in_use;
    return write_struct(outcome, out, "outcome");
  });
}

int32_t cairn_resets_create(const cairn_manager* manager, cairn_resets** resets, cairn_error* error) {
  return guarded(error, [&]() -> Status {
    *resets = new cairn_resets{manager->manager.resets()};
    return {};
  });
}

int32_t cairn_resets_next(cairn_resets* resets, uint64_t* missed) {
  const std::optional<CacheLevel> level = resets->receiver.try_next();
  if (missed != nullptr) {
    *missed = resets->receiver.missed();
  }
  return level ? static_cast<int32_t>(*level) : -1;
}

void cairn_resets_destroy(cairn_resets* resets) { delete resets; }

int32_t cairn_manager_hint(cairn_manager* manager, const cairn_key* keys, size_t count, uint32_t hint,
                           uint64_t return_ms, uint32_t* found, cairn_error* error) {
  return guarded(error, [&]() -> Status {
    CAIRN_TRY_ASSIGN(const std::vector<BlockKey> read, read_keys(keys, count));
    CAIRN_TRY_ASSIGN(const RetentionHint given, read_hint(hint, return_ms));
    CAIRN_TRY_ASSIGN(const std::uint32_t blocks, manager->manager.hint(read, given));
    if (found != nullptr) {
      *found = blocks;
    }
    return {};
  });
}

int32_t cairn_manager_end_request(cairn_manager* manager, const cairn_key* keys, size_t count, uint32_t ending,
                                  uint32_t* found, cairn_error* error) {
  return guarded(error, [&]() -> Status {
    CAIRN_TRY_ASSIGN(const std::vector<BlockKey> read, read_keys(keys, count));
    CAIRN_TRY_ASSIGN(const RequestEnding given, read_ending(ending));
    const std::uint32_t blocks = manager->manager.end_request(read, given);
    if (found != nullptr) {
      *found = blocks;
    }
    return {};
  });
}

int32_t cairn_manager_drain(cairn_manager* manager, uint64_t timeout_ms, cairn_error* error) {
  return guarded(error, [&] { return manager->manager.drain(limited_ms(timeout_ms)); });
}

int32_t cairn_manager_pause(cairn_manager* manager, uint32_t from, uint32_t to, uint32_t paused, cairn_error* error) {
  return guarded(error, [&]() -> Status {
    CAIRN_TRY_ASSIGN(const CacheLevel above, read_level(from));
    CAIRN_TRY_ASSIGN(const CacheLevel below, read_level(to));
    return paused != 0 ? manager->manager.pause(above, below) : manager->manager.resume(above, below);
  });
}

int32_t cairn_manager_report_iteration(const cairn_manager* manager, const cairn_engine_iteration* iteration,
                                       cairn_error* error) {
  return guarded(error, [&]() -> Status {
    CAIRN_TRY_ASSIGN(const cairn_engine_iteration given, read_struct(iteration, "iteration"));
    manager->manager.report({.prefill_tokens = given.prefill_tokens,
                             .prefill_context = given.prefill_context,
                             .decode_tokens = given.decode_tokens,
                             .decode_context = given.decode_context,
                             .is_full = given.is_full != 0,
                             .duration = limited_ns(given.duration_ns)});
    return {};
  });
}

int32_t cairn_manager_resize_host(cairn_manager* manager, uint32_t blocks, cairn_error* error) {
  return guarded(error, [&] { return manager->manager.resize_host(blocks); });
}

size_t cairn_manager_status(const cairn_manager* manager, char* buffer, size_t capacity, size_t* needed) {
  return guarded_text(buffer, capacity, needed, [&] { return status_as_json(manager->manager.status()); });
}

size_t cairn_manager_metrics(const cairn_manager* manager, char* buffer, size_t capacity, size_t* needed) {
  return guarded_text(buffer, capacity, needed, [&] { return manager->manager.metrics().to_prometheus(); });
}
