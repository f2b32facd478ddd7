#include "cairn/connector/operation_outcomes.h"

#include "cairn/base/byte_stream.h"
#include "cairn/connector/sealed_bytes.h"

namespace cairn {
namespace {

constexpr std::uint32_t kOutcomesMagic = 0x4F4E5243;  // "CRNO"
constexpr std::size_t kLoadBytes = internal::kOperationIdBytes + sizeof(std::uint32_t);

void put_ids(ByteWriter& out, std::span<const OperationId> ids) {
  out.count(ids.size());
  for (const OperationId& id : ids) internal::put(out, id);
}

std::vector<OperationId> get_ids(ByteReader& in) {
  std::vector<OperationId> ids(in.count(internal::kOperationIdBytes));
  for (OperationId& id : ids) id = internal::get_operation_id(in);
  return ids;
}

}  // namespace

std::vector<std::byte> OperationOutcomes::encode() const {
  std::vector<std::byte> out;
  out.reserve(internal::kSealBytes + 3 * sizeof(std::uint32_t) + sizeof(finished_before) + loads.size() * kLoadBytes +
              (saves.size() + in_flight.size()) * internal::kOperationIdBytes);
  ByteWriter writer(out);
  writer.put(internal::SealHeader{.magic = kOutcomesMagic, .version = kVersion, .flags = 0});
  writer.count(loads.size());
  for (const Load& load : loads) {
    internal::put(writer, load.id);
    writer.put(load.loaded_blocks);
  }
  put_ids(writer, saves);
  writer.put(finished_before);
  put_ids(writer, in_flight);
  internal::seal(out);
  return out;
}

Result<OperationOutcomes> OperationOutcomes::decode(std::span<const std::byte> bytes) {
  constexpr std::string_view kWhat = "operation outcomes";
  CAIRN_TRY_ASSIGN(const std::span<const std::byte> fields, internal::unseal(bytes, kOutcomesMagic, kVersion, kWhat));
  ByteReader in(fields);
  OperationOutcomes outcomes;
  const std::size_t load_count = in.count(kLoadBytes);
  outcomes.loads.reserve(load_count);
  for (std::size_t i = 0; i < load_count; ++i) {
    const OperationId id = internal::get_operation_id(in);
    outcomes.loads.push_back({id, in.get<std::uint32_t>()});
  }
  outcomes.saves = get_ids(in);
  outcomes.finished_before = in.get<std::uint64_t>();
  outcomes.in_flight = get_ids(in);
  if (in.ended_well()) return outcomes;
  return fail(ErrorCode::kCorrupt, str_cat(kWhat, ": the lengths inside the ", bytes.size(), " bytes do not add up"));
}

}  // namespace cairn
