#include "cairn/capi/c_boundary.h"

#include <array>

#include "cairn/tokens/bytes.h"

namespace cairn::capi {

int32_t code_of(ErrorCode code) {
  // The codes of the interface are those of the library, from 1 on; they never change their numbers.
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
  Result<std::span<const cairn_key>> given = read_array(keys, count, "keys");
  if (!given) {
    return Unexpected(std::move(given).error());
  }
  std::vector<BlockKey> all;
  all.reserve(count);
  for (const cairn_key& key : *given) {
    std::array<std::byte, 16> bytes;
    internal::store_be64(std::span(bytes).first<8>(), key.high);
    internal::store_be64(std::span(bytes).last<8>(), key.low);
    Result<BlockKey> read = BlockKey::from_bytes(bytes);
    if (!read) {
      return Unexpected(std::move(read).error());
    }
    all.push_back(*read);
  }
  return all;
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
