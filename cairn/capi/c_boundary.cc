#include "cairn/capi/c_boundary.h"

#include <array>

#include "cairn/tokens/bytes.h"

namespace cairn::capi {

int32_t code_of(ErrorCode code) {
  // A cairn_code is an ErrorCode plus 1. The numbers are part of the ABI and never change.
  static_assert(static_cast<int>(ErrorCode::kInvalidArgument) + 1 == CAIRN_INVALID_ARGUMENT);
  static_assert(static_cast<int>(ErrorCode::kCorrupt) + 1 == CAIRN_CORRUPT);
  static_assert(static_cast<int>(ErrorCode::kCancelled) + 1 == CAIRN_CANCELLED);
  return static_cast<int32_t>(code) + 1;
}

int32_t report(cairn_error* error, int32_t code, std::string_view message) {
  constexpr std::size_t kText = offsetof(cairn_error, message);
  if (error == nullptr || error->struct_size < kText + 1) {
    return code;
  }
  error->code = code;
  const std::size_t room = std::min(error->struct_size, sizeof(cairn_error)) - kText;
  (void)write_text(message, error->message, room, nullptr);
  return code;
}

Result<RankGrid> read_grid(std::uint32_t ranks, std::uint32_t pipeline) {
  const RankGrid grid(std::max(ranks, 1U), std::max(pipeline, 1U));
  if (grid.tensor % grid.pipeline != 0) {
    return fail(ErrorCode::kInvalidArgument,
                str_cat("ranks is ", ranks, " and pipeline ", pipeline, "; each stage needs the same number of ranks"));
  }
  return RankGrid(grid.tensor / grid.pipeline, grid.pipeline);
}

Result<std::vector<BlockKey>> read_keys(const cairn_key* keys, std::size_t count) {
  CAIRN_TRY_ASSIGN(const std::span<const cairn_key> given, read_array(keys, count, "keys"));
  std::vector<BlockKey> all;
  all.reserve(count);
  for (const cairn_key& key : given) {
    std::array<std::byte, 16> bytes;
    internal::store_be64(std::span(bytes).first<8>(), key.high);
    internal::store_be64(std::span(bytes).last<8>(), key.low);
    CAIRN_TRY_ASSIGN(const BlockKey read, BlockKey::from_bytes(bytes));
    all.push_back(read);
  }
  return all;
}

Result<CacheLevel> read_level(std::uint32_t level) {
  if (level > CAIRN_G3) {
    return fail(ErrorCode::kInvalidArgument,
                str_cat("unknown level ", level, " (expected CAIRN_G1, CAIRN_G2 or CAIRN_G3)"));
  }
  return static_cast<CacheLevel>(level);
}

Result<RequestEnding> read_ending(std::uint32_t ending) {
  if (ending > CAIRN_ENDING_ABORT) {
    return fail(ErrorCode::kInvalidArgument, str_cat("unknown ending ", ending, " (expected a cairn_ending)"));
  }
  return static_cast<RequestEnding>(ending);
}

Result<RetentionHint> read_hint(std::uint32_t hint, std::uint64_t return_ms) {
  if (hint > CAIRN_HINT_WILL_NOT_RETURN) {
    return fail(ErrorCode::kInvalidArgument, str_cat("unknown hint ", hint, " (expected a cairn_hint)"));
  }
  return RetentionHint{.kind = static_cast<RetentionHint::Kind>(hint), .in = limited_ms(return_ms)};
}

Result<std::vector<MmRun>> read_mm_runs(const cairn_mm_run* first, std::size_t count) {
  CAIRN_TRY_ASSIGN(const std::vector<cairn_mm_run> given, read_structs(first, count, "mm_runs"));
  std::vector<MmRun> runs;
  runs.reserve(count);
  for (const cairn_mm_run& run : given) {
    runs.push_back(
        {.offset = run.offset, .length = run.length, .mm_hash = run.item_hash, .item_offset = run.item_offset});
  }
  return runs;
}

Result<Prompt> read_prompt(const cairn_prompt* prompt) {
  CAIRN_TRY_ASSIGN(const cairn_prompt given, read_struct(prompt, "prompt"));
  CAIRN_TRY_ASSIGN(const std::span<const uint32_t> tokens, read_array(given.tokens, given.token_count, "tokens"));
  CAIRN_TRY_ASSIGN(std::vector<MmRun> runs, read_mm_runs(given.mm_runs, given.mm_run_count));
  const auto text = [](const char* given_text) { return given_text == nullptr ? std::string_view() : given_text; };
  return Prompt{.tokens = tokens,
                .salt = {.salt = text(given.salt), .lora_name = text(given.lora_name)},
                .mm_runs = std::move(runs)};
}

ManagerParts read_parts(cairn_offload_filter filter, void* context, uint64_t limit_us) {
  ManagerParts parts;
  if (limit_us != 0) {
    constexpr uint64_t kMost = static_cast<uint64_t>(std::chrono::microseconds(std::chrono::hours(1)).count());
    parts.offload_filter_limit = std::chrono::microseconds(std::min(limit_us, kMost));
  }
  if (filter == nullptr) {
    return parts;
  }
  parts.offload_filter = [filter, context](const FilteredRun& run, std::span<bool> keep) {
    std::vector<cairn_filter_block> blocks;
    blocks.reserve(run.blocks.size());
    for (const FilteredBlock& block : run.blocks) {
      blocks.push_back({.key = {block.key.high_word(), block.key.low_word()},
                        .position = block.key.position(),
                        .priority = block.priority,
                        .uses = block.uses,
                        .tenant = static_cast<uint32_t>(block.tenant)});
    }
    const std::string request(run.request);
    const cairn_filter_run given{.struct_size = sizeof(cairn_filter_run),
                                 .from = index_of(run.from),
                                 .to = index_of(run.to),
                                 .request = request.empty() ? nullptr : request.c_str(),
                                 .sequence_tokens = run.sequence_tokens,
                                 .blocks = blocks.data(),
                                 .block_count = blocks.size(),
                                 .block_stride = sizeof(cairn_filter_block)};
    std::vector<uint8_t> answers(blocks.size(), 1);
    filter(context, &given, answers.data());
    std::ranges::transform(answers, keep.begin(), [](uint8_t answer) { return answer != 0; });
  };
  return parts;
}

std::size_t write_text(std::string_view text, char* buffer, std::size_t capacity, std::size_t* needed) {
  if (needed != nullptr) {
    *needed = text.size() + 1;
  }
  if (buffer == nullptr || capacity == 0) {
    return 0;
  }
  const std::size_t copied = std::min(text.size(), capacity - 1);
  std::memcpy(buffer, text.data(), copied);
  buffer[copied] = '\0';
  return copied;
}

}  // namespace cairn::capi
