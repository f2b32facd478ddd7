#include "cairn/connector/iteration_metadata.h"

#include <algorithm>
#include <string>

#include "cairn/base/byte_stream.h"
#include "cairn/connector/sealed_bytes.h"

namespace cairn {
namespace {

constexpr std::uint32_t kMagic = 0x494E5243;  // "CRNI"
constexpr std::uint8_t kInStep = 1;
constexpr std::uint8_t kIsText = 2;

constexpr std::size_t kCountBytes = sizeof(std::uint32_t);
// The least that entries take, by which an impossible count is seen.
constexpr std::size_t kFenceBytes = internal::kOperationIdBytes + kCountBytes;
constexpr std::size_t kOperationBytes = kFenceBytes + 1 + kCountBytes;

void put_operation(ByteWriter& out, const Operation& operation) {
  const std::uint8_t flags = operation.in_step ? kInStep : 0;
  internal::put(out, operation.id);
  if (const std::uint64_t* const number = operation.request.number()) {
    out.put(flags);
    out.put(*number);
  } else {
    out.put(static_cast<std::uint8_t>(flags | kIsText));
    out.text(*operation.request.text());
  }
  out.list(operation.block_ids);
}

OperationPtr get_operation(ByteReader& in, bool is_load) {
  auto operation = std::make_shared<Operation>();
  operation->id = internal::get_operation_id(in);
  operation->is_load = is_load;
  const auto flags = in.get<std::uint8_t>();
  if ((flags & ~(kInStep | kIsText)) != 0) in.refuse();
  operation->in_step = (flags & kInStep) != 0;
  operation->request = (flags & kIsText) != 0 ? RequestId(in.text()) : RequestId(in.get<std::uint64_t>());
  operation->block_ids = in.list<BlockId>();
  return operation;
}

OperationPtr get_fence(ByteReader& in) {
  auto operation = std::make_shared<Operation>();
  operation->id = internal::get_operation_id(in);
  operation->block_ids = in.list<BlockId>();
  return operation;
}

// At least what the encoding takes, so that memory is taken once.
std::size_t bytes_of(const IterationMetadata& metadata) {
  std::size_t bytes = internal::kSealBytes + sizeof(LeaderId) + sizeof(std::uint64_t) + 3 * kCountBytes;
  for (const auto* list : {&metadata.loads, &metadata.saves, &metadata.fences}) {
    for (const OperationPtr& operation : *list) {
      const std::string* const text = operation->request.text();
      bytes += kOperationBytes + sizeof(std::uint64_t) + (text != nullptr ? text->size() : 0) +
               operation->block_ids.size() * sizeof(BlockId);
    }
  }
  return bytes;
}

bool is_same(std::span<const OperationPtr> a, std::span<const OperationPtr> b) {
  return std::ranges::equal(a, b, [](const OperationPtr& x, const OperationPtr& y) {
    return x->id == y->id && x->in_step == y->in_step && x->request == y->request && x->block_ids == y->block_ids;
  });
}

}  // namespace

bool operator==(const IterationMetadata& a, const IterationMetadata& b) {
  return a.leader == b.leader && a.iteration == b.iteration && is_same(a.loads, b.loads) && is_same(a.saves, b.saves) &&
         is_same(a.fences, b.fences);
}

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
  for (const OperationPtr& load : loads) put_operation(writer, *load);
  for (const OperationPtr& save : saves) put_operation(writer, *save);
  for (const OperationPtr& save : fences) {
    internal::put(writer, save->id);
    writer.list(save->block_ids);
  }
  internal::seal(out);
}

Result<IterationMetadata> IterationMetadata::decode(std::span<const std::byte> bytes) {
  constexpr std::string_view kWhat = "iteration metadata";
  CAIRN_TRY_ASSIGN(const std::span<const std::byte> fields, internal::unseal(bytes, kMagic, kVersion, kWhat));
  ByteReader in(fields);
  IterationMetadata metadata;
  metadata.leader = in.get<LeaderId>();
  metadata.iteration = in.get<std::uint64_t>();
  const std::size_t load_count = in.count(kOperationBytes);
  const std::size_t save_count = in.count(kOperationBytes);
  const std::size_t fence_count = in.count(kFenceBytes);
  metadata.loads.reserve(load_count);
  for (std::size_t i = 0; i < load_count && in.good(); ++i) metadata.loads.push_back(get_operation(in, true));
  metadata.saves.reserve(in.good() ? save_count : 0);
  for (std::size_t i = 0; i < save_count && in.good(); ++i) metadata.saves.push_back(get_operation(in, false));
  metadata.fences.reserve(in.good() ? fence_count : 0);
  for (std::size_t i = 0; i < fence_count && in.good(); ++i) metadata.fences.push_back(get_fence(in));
  if (in.ended_well()) return metadata;
  return fail(ErrorCode::kCorrupt, str_cat(kWhat, ": the lengths inside the ", bytes.size(), " bytes do not add up"));
}

}  // namespace cairn
