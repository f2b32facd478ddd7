// RequestTable: the requests of an engine, by request id and by handle.
//
// A handle names a place in the table and the request in it: found in constant time without hashing, and the handle of
// a removed request finds nothing, even if another request has its place now. An id names one request at a time and can
// be used again once its request is removed; outcomes of the old request's operations are not taken for the new one's.
//
// Thread safety: none; the scheduler's thread alone.
// Ownership: owns the requests. A request stays at its address until it is removed.
// Errors: as in slot.h; a failed call changes nothing.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "cairn/base/result.h"
#include "cairn/connector/request_entry.h"
#include "cairn/connector/request_id.h"
#include "cairn/tokens/hashes.h"
#include "cairn/tokens/key_hasher.h"

namespace cairn {

class RequestTable {
 public:
  // `hasher` makes the keys of all requests; `space` is for keys of scheme router; `groups` are the layer groups of the model,
  // null if it has one block table. Fails if the block size is 0.
  [[nodiscard]] static Result<RequestTable> make(std::uint32_t block_size, const KeyHasher& hasher,
                                                 NamespaceId space = {},
                                                 std::shared_ptr<const CacheGroups> groups = nullptr);

  [[nodiscard]] std::size_t size() const { return requests_.size(); }
  [[nodiscard]] bool contains(const RequestId& request) const { return requests_.contains(request); }
  using BlockDigests = SchedulerConnector::BlockDigests;
  // kAlreadyExists if the id names a request; kInvalidArgument without tokens; and what TokenBlockSequence::create()
  // refuses, as tokens under a scheme whose keys are not made from tokens.
  [[nodiscard]] Result<RequestEntry*> create(const RequestId& request, std::span<const Token> tokens,
                                             const RequestSalt& salt, std::span<const MmRun> runs,
                                             const BlockDigests& digests);
  // Keys of the engine's digests, of blocks that follow `parent` or begin a sequence.
  [[nodiscard]] Result<EngineBlockNames> adopt(std::optional<BlockKey> parent, const BlockDigests& digests) const;
  // nullptr if there is no such request.
  [[nodiscard]] RequestEntry* find(const RequestId& request);

  // --- by handle ---
  [[nodiscard]] std::optional<RequestHandle> handle_of(const RequestId& request) const;
  // nullptr if the request was removed or never existed.
  [[nodiscard]] RequestEntry* find(RequestHandle handle) const {
    const std::size_t place = place_of(handle);
    RequestEntry* const entry = place < places_.size() ? places_[place] : nullptr;
    return entry != nullptr && entry->handle == handle ? entry : nullptr;
  }
  // The request is about to be looked up.
  void prefetch(RequestHandle handle) const {
    if (const std::size_t place = place_of(handle); place < places_.size()) {
      const auto* const entry = reinterpret_cast<const char*>(places_[place]);
      for (std::size_t offset = 0; offset < kPrefetched; offset += kCacheLine) {
        __builtin_prefetch(entry + offset);
      }
    }
  }
  // The first request that the condition holds for; nullptr if there is none. Looks at all of them.
  template <typename Condition>
  [[nodiscard]] const RequestEntry* find_if(const Condition& condition) const {
    const auto found = std::ranges::find_if(
        places_, [&condition](const RequestEntry* entry) { return entry != nullptr && condition(*entry); });
    return found != places_.end() ? *found : nullptr;
  }
  // Returns the id that the request had. Requires: it is Finished.
  RequestId remove(RequestEntry& entry);

 private:
  // The place in the low bits, the number of the request above them, from 1 on.
  static constexpr unsigned kPlaceBits = 24;
  static constexpr std::size_t kCacheLine = 64;
  static constexpr std::size_t kPrefetched = 7 * kCacheLine;  // what every iteration reads: up to the end of the slot
  [[nodiscard]] static std::size_t place_of(RequestHandle handle) {
    return static_cast<std::uint64_t>(handle) & ((std::uint64_t{1} << kPlaceBits) - 1);
  }

  RequestTable(std::uint32_t block_size, const KeyHasher& hasher, NamespaceId space,
               std::shared_ptr<const CacheGroups> groups)
      : block_size_(block_size), hasher_(hasher), space_(space), groups_(std::move(groups)) {}
  [[nodiscard]] Result<TokenBlockSequence> make_sequence(std::span<const Token> tokens, const RequestSalt& salt,
                                                         std::span<const MmRun> runs,
                                                         const BlockDigests& digests) const;

  std::uint32_t block_size_;
  KeyHasher hasher_;  // of requests without a salt
  NamespaceId space_;
  std::shared_ptr<const CacheGroups> groups_;  // outlives the slots
  std::uint64_t next_number_ = 1;
  std::unordered_map<RequestId, RequestEntry> requests_;
  std::vector<RequestEntry*> places_;  // nullptr: free
  std::vector<std::size_t> free_;
};

// Room for so many elements, so that adding them does not allocate. Grows as a vector does.
template <typename T>
void make_room(std::vector<T>& vector, std::size_t elements) {
  if (vector.capacity() < elements) {
    vector.reserve(std::max(elements, 2 * vector.capacity()));
  }
}

}  // namespace cairn
