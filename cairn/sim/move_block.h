// MoveBlock: what a sequence asks of the manager that holds its blocks.
//
//   Use      take a reference to each of these blocks, in this order; allocate those that are not there
//   Deref    release one reference to each of these blocks, in order
//   Promote  a partial block is full and has a key from now on
// Fields about full blocks have one entry for each full block, in the order of the blocks.
//
// Ownership:  the spans refer to memory of a sequence and are valid until the sequence changes.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <variant>

#include "cairn/tokens/block_key.h"
#include "cairn/tokens/hashes.h"

namespace cairn::sim {

// Identifies a partial block: one that is still being filled.
enum class PartialId : std::uint64_t {};

// A block as a sequence knows it: full, with the hash of all tokens up to its end; or partial, with an id.
class UniqueBlock {
 public:
  [[nodiscard]] static constexpr UniqueBlock full(SequenceHash hash) { return {value_of(hash), false}; }
  [[nodiscard]] static constexpr UniqueBlock partial(PartialId id) { return {static_cast<std::uint64_t>(id), true}; }

  [[nodiscard]] constexpr bool is_partial() const { return is_partial_; }
  [[nodiscard]] constexpr bool is_full() const { return !is_partial_; }
  // Requires: is_full().
  [[nodiscard]] constexpr SequenceHash hash() const { return SequenceHash{value_}; }
  // Requires: is_partial().
  [[nodiscard]] constexpr PartialId id() const { return PartialId{value_}; }

  friend constexpr bool operator==(const UniqueBlock&, const UniqueBlock&) = default;

 private:
  constexpr UniqueBlock(std::uint64_t value, bool is_partial) : value_(value), is_partial_(is_partial) {}

  std::uint64_t value_;
  bool is_partial_;
};

struct Use {
  std::span<const UniqueBlock> blocks;
  std::span<const BlockKey> keys;                     // of the full blocks
  std::span<const BlockHash> tokens_hashes = {};      // of the full blocks, or empty
  std::optional<std::span<const Token>> token_ids{};  // all tokens of the full blocks, for events
  std::optional<UniqueBlock> parent{};                // the full block before the first one
};

struct Deref {
  std::span<const UniqueBlock> blocks;
  bool last_first = false;  // release them in reverse order
};

struct Promote {
  PartialId partial{};
  SequenceHash hash{};
  std::optional<SequenceHash> parent{};
  BlockHash tokens_hash{};
  BlockKey key{};
  std::optional<std::span<const Token>> token_ids{};
};

using MoveBlock = std::variant<Use, Deref, Promote>;

}  // namespace cairn::sim
