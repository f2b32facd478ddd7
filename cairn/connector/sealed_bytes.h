// The frame of the connector's messages: magic u32, version u16, flags u16 (0), the fields, and the hash (u64, XXH3) of all
// bytes before it. Internal.
//
// Thread safety: pure functions.
// Errors: unseal() returns kCorrupt for another magic or version, unknown flags, or damage.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cairn/base/byte_stream.h"
#include "cairn/base/result.h"
#include "cairn/base/str_cat.h"
#include "cairn/connector/slot.h"
#include "cairn/hash/hash_bytes.h"

namespace cairn::internal {

struct SealHeader {
  std::uint32_t magic = 0;
  std::uint16_t version = 0;
  std::uint16_t flags = 0;
};
inline constexpr std::size_t kSealBytes = sizeof(SealHeader) + sizeof(std::uint64_t);

inline constexpr std::size_t kOperationIdBytes = sizeof(std::uint64_t) + sizeof(std::uint32_t);

inline void put(ByteWriter& out, const OperationId& id) {
  out.put(id.slot);
  out.put(id.number);
}

[[nodiscard]] inline OperationId get_operation_id(ByteReader& in) {
  const auto slot = in.get<std::uint64_t>();
  return {.slot = slot, .number = in.get<std::uint32_t>()};
}

inline void seal(std::vector<std::byte>& bytes) { ByteWriter(bytes).put(hash_bytes(bytes, 0)); }

// The fields of a sealed message. `what` names the message in errors.
[[nodiscard]] inline Result<std::span<const std::byte>> unseal(std::span<const std::byte> bytes, std::uint32_t magic,
                                                               std::uint16_t version, std::string_view what) {
  const auto corrupt = [what](std::string_view why) {
    return fail(ErrorCode::kCorrupt, str_cat(what, ": ", why, "; pass on all encoded bytes unchanged"));
  };
  const auto header = ByteReader(bytes).get<SealHeader>();
  if (bytes.size() < kSealBytes) return corrupt(str_cat("cut off after ", bytes.size(), " bytes"));
  if (header.magic != magic) return corrupt("the first bytes are those of something else");
  if (header.version != version) {
    return fail(ErrorCode::kCorrupt, str_cat(what, ": version ", header.version, ", but this program reads version ",
                                             version, "; run the same release on both sides"));
  }
  const std::span<const std::byte> sealed = bytes.first(bytes.size() - sizeof(std::uint64_t));
  if (ByteReader(bytes.subspan(sealed.size())).get<std::uint64_t>() != hash_bytes(sealed, 0)) {
    return corrupt("the hash does not match");
  }
  if (header.flags != 0) return corrupt(str_cat("unknown flag bits ", header.flags));
  return sealed.subspan(sizeof(SealHeader));
}

}  // namespace cairn::internal
