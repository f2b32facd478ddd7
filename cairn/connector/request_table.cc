#include "cairn/connector/request_table.h"

#include <cstring>
#include <utility>

#include "cairn/base/check.h"
#include "cairn/connector/refuse.h"
#include "cairn/tokens/engine_key.h"

namespace cairn {

Result<RequestTable> RequestTable::make(std::uint32_t block_size, const KeyHasher& hasher, NamespaceId space,
                                        std::shared_ptr<const CacheGroups> groups) {
  if (block_size == 0) {
    return fail(ErrorCode::kInvalidArgument, "block size is 0; give the tokens per block");
  }
  return RequestTable(block_size, hasher, space, std::move(groups));
}

Result<EngineBlockNames> RequestTable::adopt(std::optional<BlockKey> parent, const BlockDigests& digests) const {
  const std::size_t size = digests.size;
  const bool is_router = hasher_.scheme() == KeyScheme::kRouter;
  if (digests.bytes.size() % std::max<std::size_t>(size, 1) != 0 || (is_router && size != sizeof(std::uint64_t))) {
    return refuse(ErrorCode::kInvalidArgument, digests.bytes.size(),
                  " digest bytes are not a multiple of the digest size ", size, " (scheme ",
                  to_string(hasher_.scheme()), ")");
  }
  EngineBlockNames names;
  names.keys.reserve(digests.bytes.size() / size);
  names.event_hashes.reserve(digests.bytes.size() / size);
  for (std::size_t at = 0; at < digests.bytes.size(); at += size) {
    const std::span<const std::byte> digest = digests.bytes.subspan(at, size);
    const std::uint64_t position = parent ? parent->position() + 1 : 0;
    const auto adopt_one = [&]() -> Result<BlockKey> {
      switch (hasher_.scheme()) {
        case KeyScheme::kVllm:
          return vllm_adopt(hasher_, parent, digest, position);
        case KeyScheme::kSglang:
          return sglang_adopt(hasher_, parent, digest, position);
        default: {
          std::uint64_t hash = 0;
          std::memcpy(&hash, digest.data(), sizeof hash);
          return adopt_hash(space_, parent, hash, position);
        }
      }
    };
    CAIRN_TRY_ASSIGN(const BlockKey key, adopt_one());
    names.keys.push_back(key);
    names.event_hashes.push_back(engine_event_hash(hasher_.scheme(), digest));
    parent = key;
  }
  return names;
}

Result<TokenBlockSequence> RequestTable::make_sequence(std::span<const Token> tokens, const RequestSalt& salt,
                                                       std::span<const MmRun> runs, const BlockDigests& digests) const {
  if (digests.size == 0) {
    const bool is_salted = !salt.salt.empty() || !salt.lora_name.empty();
    return TokenBlockSequence::create(tokens, block_size_, is_salted ? hasher_.with(salt) : hasher_, runs);
  }
  // Salt, adapter and multimodal items are in the engine's digests.
  CAIRN_TRY_ASSIGN(TokenBlockSequence sequence, TokenBlockSequence::create_adopting(tokens, block_size_, hasher_));
  CAIRN_TRY_ASSIGN(const EngineBlockNames names, adopt(std::nullopt, digests));
  CAIRN_TRY(sequence.adopt(names.keys, names.event_hashes));
  return sequence;
}

Result<RequestEntry*> RequestTable::create(const RequestId& request, std::span<const Token> tokens,
                                           const RequestSalt& salt, std::span<const MmRun> runs,
                                           const BlockDigests& digests) {
  if (const auto found = requests_.find(request); found != requests_.end()) {
    return refuse(ErrorCode::kAlreadyExists, "request ", request.to_string(), " has a slot, which is ",
                  found->second.slot.state().to_string(), "; the id can be used again once that request is finished");
  }
  if (tokens.empty()) {
    return refuse(ErrorCode::kInvalidArgument, "request ", request.to_string(), " has no tokens; give its prompt");
  }
  CAIRN_TRY_ASSIGN(TokenBlockSequence sequence, make_sequence(tokens, salt, runs, digests));
  // Everything that may fail for want of memory comes before the first change that is seen.
  if (free_.empty()) {
    CAIRN_CHECK(places_.size() < std::size_t{1} << kPlaceBits, "more requests at once than handles have places for");
    make_room(free_, places_.size() + 1);  // as many as may ever be free
    places_.push_back(nullptr);
    free_.push_back(places_.size() - 1);
  }
  const std::size_t place = free_.back();
  const RequestHandle handle{(next_number_ << kPlaceBits) | place};
  const auto [added, is_new] = requests_.try_emplace(request, handle, std::move(sequence), groups_.get());
  CAIRN_CHECK(is_new, "an id names one request at a time");
  ++next_number_;
  free_.pop_back();
  RequestEntry& entry = added->second;
  entry.id = &added->first;
  places_[place] = &entry;
  return &entry;
}

RequestEntry* RequestTable::find(const RequestId& request) {
  const auto found = requests_.find(request);
  return found != requests_.end() ? &found->second : nullptr;
}

std::optional<RequestHandle> RequestTable::handle_of(const RequestId& request) const {
  const auto found = requests_.find(request);
  return found != requests_.end() ? std::optional(found->second.handle) : std::nullopt;
}

RequestId RequestTable::remove(RequestEntry& entry) {
  CAIRN_CHECK(entry.slot.state() == SlotState::finished(), "only a finished request is removed");
  const std::size_t place = place_of(entry.handle);
  places_[place] = nullptr;
  free_.push_back(place);
  return std::move(requests_.extract(*entry.id).key());
}

}  // namespace cairn
