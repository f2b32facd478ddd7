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
