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

Result<CacheLevel> level_of(uint32_t level) {
  if (level > CAIRN_G3) {
    return fail(ErrorCode::kInvalidArgument, str_cat("there is no level ", level));
  }
  return static_cast<CacheLevel>(level);
}

Result<BlockPool*> pool_of(const cairn_manager* manager, uint32_t level) {
  const Result<CacheLevel> read = level_of(level);
  if (!read) {
    return Unexpected(read.error());
  }
  BlockPool* const pool = manager->manager.pool(*read);
  if (pool == nullptr) {
    return fail(ErrorCode::kNotFound, str_cat("there is no pool of ", to_string(*read), " here"));
  }
  return pool;
}

// None of the blocks is NULL.
cairn_blocks* handle_of(ImmutableBlocks blocks) {
  return blocks.empty() ? nullptr : new cairn_blocks{std::move(blocks)};
}

}  // namespace

Result<ManagerConfig> read_config(const char* text, const char* file, bool use_environment) {
  if (text != nullptr && file != nullptr) {
    return fail(ErrorCode::kInvalidArgument, "both config and config_file are given; give one");
  }
  Result<ManagerConfig> config = text != nullptr   ? ManagerConfig::from_toml(text, "config")
                                 : file != nullptr ? ManagerConfig::from_file(file)
                                                   : Result<ManagerConfig>(ManagerConfig());
  if (config && use_environment) {
    if (Status status = config->apply(ManagerConfig::environment_of_process()); !status) {
      return Unexpected(Error(status.error()));
    }
  }
  return config;
}

}  // namespace cairn::capi

using namespace cairn;        // NOLINT(google-build-using-namespace): the functions stand outside of it
using namespace cairn::capi;  // NOLINT(google-build-using-namespace)

uint32_t cairn_api_version(void) { return CAIRN_API_VERSION; }
const char* cairn_version(void) { return CAIRN_VERSION; }

const char* cairn_code_name(int32_t code) {
  if (code == CAIRN_OK) {
    return "ok";
  }
  // The names are literals: they end with a 0.
  return code < CAIRN_OK || code > CAIRN_CANCELLED ? "unknown" : to_string(static_cast<ErrorCode>(code - 1)).data();
}

int32_t cairn_manager_create(const cairn_manager_options* options, cairn_manager** manager, cairn_error* error) {
  return guarded(error, [&]() -> int32_t {
    const Result<cairn_manager_options> given = read_struct(options, "options");
    if (!given || manager == nullptr) {
      return given ? report(error, CAIRN_INVALID_ARGUMENT, "manager is NULL") : report(error, given.error());
    }
    const Result<ManagerConfig> config = read_config(given->config, given->config_file, given->use_environment != 0);
    if (!config) {
      return report(error, config.error());
    }
    Result<KvBlockManager> made = KvBlockManager::make(*config);
    if (!made) {
      return report(error, made.error());
    }
    *manager = new cairn_manager(*std::move(made));
    return CAIRN_OK;
  });
}

void cairn_manager_destroy(cairn_manager* manager) { delete manager; }

uint32_t cairn_manager_block_size(const cairn_manager* manager) { return manager->manager.block_size(); }

int32_t cairn_manager_hash_prompt(const cairn_manager* manager, const cairn_prompt* prompt, cairn_key* keys,
                                  size_t* count, cairn_error* error) {
  return guarded(error, [&]() -> int32_t {
    Result<Prompt> given = read_prompt(prompt);
    if (!given) {
      return report(error, given.error());
    }
    const uint32_t block_size = manager->manager.block_size();
    if (count == nullptr || (keys == nullptr && given->tokens.size() >= block_size)) {
      return report(error, CAIRN_INVALID_ARGUMENT, count == nullptr ? "count is NULL" : "keys is NULL");
    }
    std::ranges::sort(given->mm_runs, {}, &MmRun::offset);
    std::vector<BlockKey> made(given->tokens.size() / block_size);
    const Result<std::size_t> hashed = hash_blocks(
        given->tokens, block_size, manager->manager.hasher().with(given->salt), std::nullopt, made, {}, given->mm_runs);
    if (!hashed) {
      return report(error, hashed.error());
    }
    for (std::size_t i = 0; i < *hashed; ++i) {
      keys[i] = {made[i].high_word(), made[i].low_word()};
    }
    *count = *hashed;
    return CAIRN_OK;
  });
}

int32_t cairn_manager_locate(const cairn_manager* manager, const cairn_key* keys, size_t count, uint8_t* levels,
                             size_t* found, cairn_error* error) {
  return guarded(error, [&]() -> int32_t {
    const Result<std::vector<BlockKey>> read = read_keys(keys, count);
    if (!read) {
      return report(error, read.error());
    }
    const PrefixLocation location = manager->manager.locate(*read);
    for (std::size_t i = 0; levels != nullptr && i < location.levels.size(); ++i) {
      levels[i] = static_cast<uint8_t>(location.levels[i]);
    }
    if (found != nullptr) {
      *found = location.levels.size();
    }
    return CAIRN_OK;
  });
}

int32_t cairn_manager_allocate(cairn_manager* manager, uint32_t level, uint32_t count, cairn_blocks** blocks,
                               cairn_error* error) {
  return guarded(error, [&]() -> int32_t {
    const Result<BlockPool*> pool = pool_of(manager, level);
    if (!pool) {
      return report(error, pool.error());
    }
    Result<MutableBlocks> allocated = (*pool)->allocate(count);
    if (!allocated) {
      return report(error, allocated.error());
    }
    *blocks = new cairn_blocks{*std::move(allocated)};
    return CAIRN_OK;
  });
}

int32_t cairn_blocks_register(cairn_blocks* blocks, const cairn_key* keys, size_t count, cairn_error* error) {
  return guarded(error, [&]() -> int32_t {
    auto* const filled = std::get_if<MutableBlocks>(&blocks->blocks);
    const Result<std::vector<BlockKey>> read = read_keys(keys, count);
    if (filled == nullptr || !read) {
      return filled == nullptr ? report(error, CAIRN_FAILED_PRECONDITION, "the blocks are registered already")
                               : report(error, read.error());
    }
    Result<CompleteBlocks, Rejected<MutableBlocks>> complete = std::move(*filled).complete({.keys = *read});
    if (!complete) {
      const int32_t code = report(error, complete.error().error);
      blocks->blocks.emplace<MutableBlocks>(std::move(complete).error().blocks);
      return code;
    }
    try {
      auto registered = (*std::move(complete)).register_blocks(Retention{});
      if (!registered) {
        const int32_t code = report(error, registered.error().error);
        blocks->blocks.emplace<MutableBlocks>(std::move(registered).error().blocks.reset());
        return code;
      }
      blocks->blocks.emplace<ImmutableBlocks>(*std::move(registered));
    } catch (...) {
      blocks->blocks.emplace<MutableBlocks>((*std::move(complete)).reset());  // as they were
      throw;
    }
    return CAIRN_OK;
  });
}

int32_t cairn_manager_match(cairn_manager* manager, uint32_t level, const cairn_key* keys, size_t count,
                            cairn_blocks** blocks, cairn_error* error) {
  return guarded(error, [&]() -> int32_t {
    const Result<BlockPool*> pool = pool_of(manager, level);
    const Result<std::vector<BlockKey>> read = read_keys(keys, count);
    if (!pool || !read) {
      return report(error, !pool ? pool.error() : read.error());
    }
    *blocks = handle_of((*pool)->match_prefix(*read));
    return CAIRN_OK;
  });
}

int32_t cairn_manager_load(cairn_manager* manager, const cairn_key* keys, size_t count, uint64_t deadline_ms,
                           cairn_blocks** blocks, cairn_error* error) {
  return guarded(error, [&]() -> int32_t {
    Result<std::vector<BlockKey>> read = read_keys(keys, count);
    if (!read) {
      return report(error, read.error());
    }
    LoadRequest request{.keys = *std::move(read)};
    if (deadline_ms != 0) {
      request.deadline = deadline_after(steady_clock().now(), limited_ms(deadline_ms));
    }
    Result<LoadResult> loaded = manager->manager.load_and_wait(std::move(request));
    if (!loaded) {
      return report(error, loaded.error());
    }
    *blocks = handle_of(std::move(loaded->blocks));
    return CAIRN_OK;
  });
}

namespace {

std::span<const BlockId> block_ids_of(const cairn_blocks* blocks) {
  return std::visit([](const auto& run) -> std::span<const BlockId> { return run.block_ids(); }, blocks->blocks);
}

}  // namespace

size_t cairn_blocks_count(const cairn_blocks* blocks) { return blocks == nullptr ? 0 : block_ids_of(blocks).size(); }

void cairn_blocks_ids(const cairn_blocks* blocks, uint32_t* block_ids) {
  for (const BlockId block_id : block_ids_of(blocks)) {
    *block_ids++ = index_of(block_id);
  }
}

void cairn_blocks_release(cairn_blocks* blocks) { delete blocks; }

int32_t cairn_manager_address(const cairn_manager* manager, uint32_t level, uint32_t block_id, uint32_t layer,
                              uint32_t k_or_v, uint32_t token, uint32_t head, void** address, cairn_error* error) {
  return guarded(error, [&]() -> int32_t {
    const Result<CacheLevel> read = level_of(level);
    const BlockLayoutPtr layout = read ? manager->manager.layout(*read) : nullptr;
    if (layout == nullptr) {
      return report(error, CAIRN_NOT_FOUND, "there is no such tier");
    }
    const KvShape& shape = layout->shape();
    if (block_id >= layout->blocks() || layer >= shape.layers || k_or_v >= shape.kv || token >= shape.page_size ||
        head >= shape.heads) {
      return report(error, CAIRN_OUT_OF_RANGE, "the tier has no such block, layer, K or V, token or head");
    }
    const BlockLayout::Address at = layout->address(block_id, layer, k_or_v, token, head);
    std::byte* const base = layout->regions()[at.region]->base();
    if (base == nullptr) {
      return report(error, CAIRN_FAILED_PRECONDITION, "blocks of this tier are in a file or in other processes");
    }
    *address = base + at.offset;
    return CAIRN_OK;
  });
}

int32_t cairn_manager_reset(cairn_manager* manager, uint32_t level, uint32_t* count, cairn_error* error) {
  return guarded(error, [&]() -> int32_t {
    const Result<CacheLevel> read = level_of(level);
    if (!read) {
      return report(error, read.error());
    }
    const Result<ResetReport> done = manager->manager.reset(*read);
    if (!done) {
      return report(error, done.error());
    }
    if (count != nullptr) {
      *count = done->reset;
    }
    return CAIRN_OK;
  });
}

int32_t cairn_manager_reset_all(cairn_manager* manager, cairn_reset_report* report, cairn_error* error) {
  return reset_and_report(report, error, [&] { return manager->manager.reset_all(); });
}

int32_t cairn_manager_invalidate(cairn_manager* manager, uint64_t weights_generation, cairn_reset_report* report,
                                 cairn_error* error) {
  return reset_and_report(report, error, [&] { return manager->manager.invalidate(weights_generation); });
}

int32_t cairn_manager_drain(cairn_manager* manager, uint64_t longest_ms, cairn_error* error) {
  return guarded(error, [&] { return outcome(manager->manager.drain(limited_ms(longest_ms)), error); });
}

int32_t cairn_manager_pause(cairn_manager* manager, uint32_t from, uint32_t to, uint32_t paused, cairn_error* error) {
  return guarded(error, [&]() -> int32_t {
    const Result<CacheLevel> above = level_of(from);
    const Result<CacheLevel> below = level_of(to);
    if (!above || !below) {
      return report(error, !above ? above.error() : below.error());
    }
    return outcome(paused != 0 ? manager->manager.pause(*above, *below) : manager->manager.resume(*above, *below),
                   error);
  });
}

int32_t cairn_manager_resize_host(cairn_manager* manager, uint32_t blocks, cairn_error* error) {
  return guarded(error, [&] { return outcome(manager->manager.resize_host(blocks), error); });
}

size_t cairn_manager_status(const cairn_manager* manager, char* buffer, size_t capacity, size_t* needed) {
  return guarded_text(buffer, capacity, needed, [&] { return status_as_json(manager->manager.status()); });
}

size_t cairn_manager_metrics(const cairn_manager* manager, char* buffer, size_t capacity, size_t* needed) {
  return guarded_text(buffer, capacity, needed, [&] { return manager->manager.metrics().to_prometheus(); });
}
