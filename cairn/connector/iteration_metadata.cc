#include "cairn/connector/iteration_metadata.h"

#include <string>
#include <utility>
#include <variant>

#include "cairn/base/byte_stream.h"
#include "cairn/connector/sealed_bytes.h"

namespace cairn {
namespace {

constexpr std::uint32_t kMagic = 0x494E5243;  // "CRNI"
constexpr std::uint8_t kInStep = 1;
constexpr std::uint8_t kIsText = 2;

constexpr std::size_t kIdBytes = internal::kOperationIdBytes;
constexpr std::size_t kCountBytes = sizeof(std::uint32_t);
// The least that entries take, by which a count that cannot be is seen.
constexpr std::size_t kFenceBytes = kIdBytes + kCountBytes;
constexpr std::size_t kWorkBytes = kFenceBytes + 1 + kCountBytes;

// A load or a save.
template <typename Work>
void put_work(ByteWriter& out, const Work& work, std::uint8_t flags) {
  internal::put(out, work.id);
  if (const std::uint64_t* const number = work.request.number()) {
    out.put(flags);
    out.put(*number);
  } else {
    out.put(static_cast<std::uint8_t>(flags | kIsText));
    out.text(*work.request.text());
  }
  out.list(work.blocks);
}

RequestId get_request(ByteReader& in, std::uint8_t flags) {
  return (flags & kIsText) != 0 ? RequestId(in.text()) : RequestId(in.get<std::uint64_t>());
}

std::uint8_t get_flags(ByteReader& in, std::uint8_t known) {
  const auto flags = in.get<std::uint8_t>();
  if ((flags & ~known) != 0) in.refuse();
  return flags;
}

template <typename Work>
std::size_t bytes_of(const std::vector<Work>& list) {
  std::size_t bytes = 0;
  for (const Work& work : list) {
    const std::string* const text = work.request.text();
    bytes += kWorkBytes + sizeof(std::uint64_t) + (text != nullptr ? text->size() : 0);
    bytes += work.blocks.size() * sizeof(BlockId);
  }
  return bytes;
}

// At least what it takes, so that memory is taken once.
std::size_t bytes_of(const IterationMetadata& metadata) {
  std::size_t bytes = internal::kSealBytes + sizeof(LeaderId) + sizeof(std::uint64_t) + 3 * kCountBytes;
  bytes += bytes_of(metadata.loads) + bytes_of(metadata.saves);
  for (const auto& fence : metadata.fences) bytes += kFenceBytes + fence.blocks.size() * sizeof(BlockId);
  return bytes;
}

}  // namespace

void IterationMetadata::encode(std::vector<std::byte>& out) const {
  out.clear();
  out.reserve(bytes_of(*this));
  ByteWriter writer(out);
  writer.put(internal::SealHeader{.magic = kMagic, .version = kVersion, .flags = 0});
  writer.put(leader);
  writer.put(iteration);
  writer.count(loads.size());
  writer.count(saves.size());
  writer.count(fences.size());
  for (const Load& load : loads) put_work(writer, load, load.in_step ? kInStep : 0);
  for (const Save& save : saves) put_work(writer, save, 0);
  for (const Fence& fence : fences) {
    internal::put(writer, fence.save);
    writer.list(fence.blocks);
  }
  internal::seal(out);
}

Result<IterationMetadata> IterationMetadata::decode(std::span<const std::byte> bytes) {
  constexpr std::string_view kWhat = "the metadata of an iteration";
  const Result<std::span<const std::byte>> fields = internal::unseal(bytes, kMagic, kVersion, kWhat);
  if (!fields) return Unexpected<Error>(fields.error());
  ByteReader in(*fields);
  IterationMetadata metadata;
  metadata.leader = in.get<LeaderId>();
  metadata.iteration = in.get<std::uint64_t>();
  const std::size_t load_count = in.count(kWorkBytes);
  const std::size_t save_count = in.count(kWorkBytes);
  const std::size_t fence_count = in.count(kFenceBytes);
  metadata.loads.reserve(load_count);
  for (std::size_t i = 0; i < load_count && in.good(); ++i) {
    const OperationId id = internal::get_operation_id(in);
    const std::uint8_t flags = get_flags(in, kInStep | kIsText);
    RequestId request = get_request(in, flags);
    metadata.loads.push_back({id, std::move(request), (flags & kInStep) != 0, in.list<BlockId>()});
  }
  metadata.saves.reserve(in.good() ? save_count : 0);
  for (std::size_t i = 0; i < save_count && in.good(); ++i) {
    const OperationId id = internal::get_operation_id(in);
    RequestId request = get_request(in, get_flags(in, kIsText));
    metadata.saves.push_back({id, std::move(request), in.list<BlockId>()});
  }
  metadata.fences.reserve(in.good() ? fence_count : 0);
  for (std::size_t i = 0; i < fence_count && in.good(); ++i) {
    const OperationId id = internal::get_operation_id(in);
    metadata.fences.push_back({id, in.list<BlockId>()});
  }
  if (in.ended_well()) return metadata;
  return fail(ErrorCode::kCorrupt, str_cat("the ", bytes.size(), " bytes of ", kWhat, " do not add up"));
}

}  // namespace cairn
