// The messages between a leader and its ranks, and their encoding.
//
// The leader starts with a challenge; the rank answers with a hello that proves that it knows the secret; the leader welcomes
// it under a new generation, with its own proof and the configuration; the rank allocates its memory and is ready. A leader
// that has a rank wait for its welcome until another rank is ready sends pings of generation 0 meanwhile, which need no
// answer. When the rank is ready, transfers, cancels and broadcasts go to it, outcomes come back, and it answers pings. A
// refusal says why the connection ends, and is the last message.
//
// Frame, little-endian: magic u32 "CRNK", version u16, kind u16, generation u32, payload bytes u32, hash u64 (XXH3 of the
// payload, seeded with the XXH3 of the header before it), payload. The kind is the index of the message in RankMessage,
// plus 1.
//
// Thread safety: pure functions; a decoder belongs to one thread.
// Errors:        decoding returns kCorrupt for a frame of another version, an unknown kind, a hash that does not match,
//                counts beyond the payload, or a payload above the limit. Nothing is allocated for bytes that have not
//                arrived.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "cairn/base/clock.h"
#include "cairn/base/ids.h"
#include "cairn/base/result.h"
#include "cairn/hash/sha256_digest.h"
#include "cairn/layout/rank_grid.h"
#include "cairn/memory/shared_memory.h"
#include "cairn/transfer/checksum.h"
#include "cairn/transfer/copy_plan.h"
#include "cairn/transfer/executor.h"
#include "cairn/wire/rank_address.h"

namespace cairn {

class ByteWriter;

using RankNonce = std::array<std::byte, 16>;

// Which rank a process is, and what it has of the model.
struct RankClaim {
  std::uint32_t rank = 0;
  RankGrid ranks = {};
  std::uint32_t layers = 0;                       // of its device memory
  std::optional<std::uint32_t> first_layer = {};  // their first one in the model; std::nullopt: dealt evenly
  std::uint32_t groups = 1;                       // kinds of layers
  std::uint64_t block_bytes = 0;                  // of its part of one block, all groups together
  std::uint64_t padded_bytes = 0;  // the same on disk and in shared host memory: each group in whole pages

  // The layers that the rank has of a model with `whole_layers`. Fails if it does not say its first layer and has another
  // number of layers than its stage has if they are dealt evenly.
  [[nodiscard]] Result<LayerRange> layer_range(std::uint32_t whole_layers) const;
  friend bool operator==(const RankClaim&, const RankClaim&) = default;
};

// Where a rank keeps its part of the blocks.
enum class RankStore : std::uint8_t {
  kOwn,     // in host memory and a file of its own
  kKeeper,  // shared with the ranks that hold the same part; this one makes the file
  kGuest,   // the same; another rank has made the file
};

// --- handshake ---
struct RankChallenge {  // from the leader
  RankNonce nonce = {};
  friend bool operator==(const RankChallenge&, const RankChallenge&) = default;
};
struct RankHello {  // from the rank
  RankClaim claim = {};
  RankNonce nonce = {};
  Digest proof = {};  // rank_proof.h
  friend bool operator==(const RankHello&, const RankHello&) = default;
};
struct RankWelcome {  // from the leader
  LeaderId leader = {};
  std::uint32_t generation = 0;
  Duration heartbeat = {};
  std::string config = {};  // ManagerConfig of the whole engine, as TOML
  RankStore store = RankStore::kOwn;
  bool has_host_memory = false;  // `host_memory` comes with the message: over a Unix socket as a descriptor
  SharedMemoryPtr host_memory = {};
  Digest proof = {};  // rank_proof.h
  friend bool operator==(const RankWelcome&, const RankWelcome&) = default;
};
struct RankReady {  // from the rank: it has its memory, and no transfer of an earlier generation touches any block
  std::uint64_t block_bytes = 0;  // size of its part of one block
  bool is_reserved = true;        // the space of its file
  friend bool operator==(const RankReady&, const RankReady&) = default;
};
struct RankRefusal {  // from either side, which then closes the connection
  std::string reason = {};
  friend bool operator==(const RankRefusal&, const RankRefusal&) = default;
};

// --- transfers ---
struct RankTransfer {  // from the leader
  TransferId id{};
  CacheLevel from = CacheLevel::kG1;
  CacheLevel to = CacheLevel::kG1;
  StepMark not_before = {};  // the rank holds the transfer back until its engine has reached this mark
  Duration time_left = {};   // until its deadline
  std::vector<BlockPair> pairs = {};
  std::vector<BlockTag> tags = {};  // one for each pair
  friend bool operator==(const RankTransfer&, const RankTransfer&) = default;
};
struct RankCancel {  // from the leader: parts that have not begun are not needed any more
  TransferId id{};
  friend bool operator==(const RankCancel&, const RankCancel&) = default;
};
struct RankTransferOutcome {  // from the rank
  TransferId id{};
  std::vector<BlockState> states = {};
  std::vector<BlockSums> sums = {};  // of the rank's part of each block; 0 if the block is not done
  std::string error = {};
  Duration copied = Duration::zero();  // while copies were in flight: not while the transfer was held back
  friend bool operator==(const RankTransferOutcome&, const RankTransferOutcome&) = default;
};
struct RankSettled {  // from the rank, after RankTransferOutcome: the transfer does not touch its blocks any more
  TransferId id{};
  friend bool operator==(const RankSettled&, const RankSettled&) = default;
};

// --- other messages ---
struct
    RankBroadcast {  // from the leader to every rank that is ready, in order with the transfers; bytes of the connector
  std::vector<std::byte> bytes = {};
  friend bool operator==(const RankBroadcast&, const RankBroadcast&) = default;
};
struct RankPing {  // from the leader, answered by the rank with the same number
  std::uint64_t number = 0;
  friend bool operator==(const RankPing&, const RankPing&) = default;
};
struct RankPong {
  std::uint64_t number = 0;
  friend bool operator==(const RankPong&, const RankPong&) = default;
};

using RankMessage = std::variant<RankChallenge, RankHello, RankWelcome, RankReady, RankRefusal, RankTransfer,
                                 RankCancel, RankTransferOutcome, RankSettled, RankBroadcast, RankPing, RankPong>;

inline constexpr std::uint16_t kRankProtocol = 4;
// From the welcome until the rank is ready: it allocates its memory and makes its file meanwhile.
inline constexpr Duration kRankReadyLimit = std::chrono::minutes(10);
inline constexpr std::size_t kMaxPayload = std::size_t{64} << 20;
// Payload limits for a peer that has not proven yet that it knows the secret: of a rank's hello, of a leader's welcome.
inline constexpr std::size_t kMaxHelloPayload = 256;
inline constexpr std::size_t kMaxWelcomePayload = std::size_t{1} << 20;

// As in a hello; the proof is made of the same bytes.
void put_claim(ByteWriter& out, const RankClaim& claim);

// Appends one frame. A negative duration is encoded as zero.
// Requires: a payload of at most kMaxPayload, as many tags as pairs, as many sums as states.
void encode(const RankMessage& message, std::uint32_t generation, std::vector<std::byte>& out);

// Decodes a stream of bytes into messages.
class RankDecoder {
 public:
  explicit RankDecoder(std::size_t max_payload = kMaxPayload) : max_payload_(max_payload) {}
  struct Received {
    std::uint32_t generation = 0;
    RankMessage message;
  };
  void feed(std::span<const std::byte> bytes);
  // std::nullopt if more bytes are needed. After an error every call returns the same error. A frame that is too large is
  // refused when its header has arrived.
  [[nodiscard]] Result<std::optional<Received>> next();
  // Applies from the next frame on.
  void set_max_payload(std::size_t bytes) { max_payload_ = bytes; }
  // Bytes that were fed and not decoded yet.
  [[nodiscard]] std::size_t buffered() const { return bytes_.size() - read_; }
  // Bytes that complete the largest frame. Feed no more at once to keep the buffer below one frame.
  [[nodiscard]] std::size_t room() const;

 private:
  [[nodiscard]] Result<std::optional<Received>> cut();

  std::size_t max_payload_;
  std::vector<std::byte> bytes_;
  std::size_t read_ = 0;
  std::optional<Error> error_;
};

}  // namespace cairn
