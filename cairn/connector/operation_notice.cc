#include "cairn/connector/operation_notice.h"

#include "cairn/base/byte_stream.h"
#include "cairn/connector/sealed_bytes.h"

namespace cairn {
namespace {

constexpr std::uint32_t kNoticeMagic = 0x4F4E5243;  // "CRNO"
constexpr std::size_t kLoadBytes = internal::kOperationIdBytes + sizeof(std::uint32_t);

}  // namespace

std::vector<std::byte> OperationNotice::encode() const {
  std::vector<std::byte> out;
  out.reserve(internal::kSealBytes + 3 * sizeof(std::uint32_t) + sizeof(over_before) + loads.size() * kLoadBytes +
              (saves.size() + under_way.size()) * internal::kOperationIdBytes);
  ByteWriter writer(out);
  writer.put(internal::SealHeader{.magic = kNoticeMagic, .version = kVersion, .flags = 0});
  writer.count(loads.size());
  for (const Load& load : loads) {
    internal::put(writer, load.id);
    writer.put(load.arrived);
  }
  writer.count(saves.size());
  for (const OperationId& save : saves) internal::put(writer, save);
  writer.put(over_before);
  writer.count(under_way.size());
  for (const OperationId& operation : under_way) internal::put(writer, operation);
  internal::seal(out);
  return out;
}

Result<OperationNotice> OperationNotice::decode(std::span<const std::byte> bytes) {
  constexpr std::string_view kWhat = "the notice of operations";
  const Result<std::span<const std::byte>> fields = internal::unseal(bytes, kNoticeMagic, kVersion, kWhat);
  if (!fields) return Unexpected<Error>(fields.error());
  ByteReader in(*fields);
  OperationNotice notice;
  const std::size_t load_count = in.count(kLoadBytes);
  notice.loads.reserve(load_count);
  for (std::size_t i = 0; i < load_count; ++i) {
    const OperationId id = internal::get_operation_id(in);
    notice.loads.push_back({id, in.get<std::uint32_t>()});
  }
  const std::size_t save_count = in.count(internal::kOperationIdBytes);
  notice.saves.reserve(save_count);
  for (std::size_t i = 0; i < save_count; ++i) notice.saves.push_back(internal::get_operation_id(in));
  notice.over_before = in.get<std::uint64_t>();
  const std::size_t under_way_count = in.count(internal::kOperationIdBytes);
  notice.under_way.reserve(under_way_count);
  for (std::size_t i = 0; i < under_way_count; ++i) notice.under_way.push_back(internal::get_operation_id(in));
  if (in.ended_well()) return notice;
  return fail(ErrorCode::kCorrupt, str_cat("the ", bytes.size(), " bytes of ", kWhat, " do not add up"));
}

}  // namespace cairn
