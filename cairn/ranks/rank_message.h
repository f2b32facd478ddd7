// What a leader and its ranks say to each other, and how it stands on a wire.
//
// Talk:     the leader opens with a challenge; the rank says hello with its proof; the leader welcomes it under a new
//           generation, with its own proof and the configuration; the rank makes its memory and is ready. From then on
//           copies, cancels and notices go down, outcomes go up, and both answer pings. A refusal ends the talk and says why.
// Frame:    little-endian: magic u32 "CRNK", version u16, kind u16, generation u32, payload bytes u32, hash u64 (XXH3
//           of the payload, seeded with that of the header before it), payload. A kind is the place of the message in
//           RankMessage, from 1 on. A frame of another version is refused by name.
// Fails:    decoding: kCorrupt for what does not add up, a kind that is none, counts beyond the payload, a payload above
//           kMaxPayload; nothing is allocated before the bytes for it are there.
// Threads:  pure; a decoder belongs to one.
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
#include "cairn/ranks/leader_id.h"
#include "cairn/transfer/checksum.h"
#include "cairn/transfer/copy_plan.h"
#include "cairn/transfer/executor.h"
#include "cairn/transfer/step_mark.h"

namespace cairn {

using RankNonce = std::array<std::byte, 16>;

// --- the beginning ---
struct RankChallenge {  // from the leader
  RankNonce nonce = {};
  friend bool operator==(const RankChallenge&, const RankChallenge&) = default;
};
struct RankHello {  // from the rank
  std::uint32_t rank = 0;
  std::uint32_t ranks = 0;
  RankNonce nonce = {};
  Digest proof = {};  // that it knows the secret, of the leader's nonce
  friend bool operator==(const RankHello&, const RankHello&) = default;
};
struct RankWelcome {  // from the leader
  LeaderId leader = {};
  std::uint32_t generation = 0;
  Duration heartbeat = {};
  std::string config = {};  // ManagerConfig as TOML, of the whole engine
  Digest proof = {};        // of the rank's nonce
  friend bool operator==(const RankWelcome&, const RankWelcome&) = default;
};
struct RankReady {  // from the rank: its memory is there, and no copy of an earlier generation touches anything
  std::uint64_t block_bytes = 0;  // that it has of one block
  friend bool operator==(const RankReady&, const RankReady&) = default;
};
struct RankRefusal {  // from either; then it closes
  std::string reason = {};
  friend bool operator==(const RankRefusal&, const RankRefusal&) = default;
};

// --- copies ---
struct RankCopy {  // from the leader
  TransferId id{};
  CacheLevel from = CacheLevel::kG1;
  CacheLevel to = CacheLevel::kG1;
  StepMark not_before = {};
  Duration time_left = {};  // until its deadline
  std::vector<BlockPair> pairs = {};
  std::vector<BlockTag> tags = {};  // one for each pair
  friend bool operator==(const RankCopy&, const RankCopy&) = default;
};
struct RankCancel {  // from the leader: what has not begun need not
  TransferId id{};
  friend bool operator==(const RankCancel&, const RankCancel&) = default;
};
struct RankCopyDone {  // from the rank: what became of each block of the copy
  TransferId id{};
  std::vector<BlockState> states = {};
  std::vector<Checksum> checksums = {};  // of what was copied; 0 where it was not
  std::string error = {};
  friend bool operator==(const RankCopyDone&, const RankCopyDone&) = default;
};
struct RankSettled {  // from the rank, after RankCopyDone: nothing touches the blocks of the copy any more
  TransferId id{};
  friend bool operator==(const RankSettled&, const RankSettled&) = default;
};

// --- the rest ---
struct RankNotice {  // from the leader: for whoever uses the ranks, in order with the copies
  std::vector<std::byte> bytes = {};
  friend bool operator==(const RankNotice&, const RankNotice&) = default;
};
struct RankPing {  // from the leader, answered by the rank with the same number
  std::uint64_t number = 0;
  friend bool operator==(const RankPing&, const RankPing&) = default;
};
struct RankPong {
  std::uint64_t number = 0;
  friend bool operator==(const RankPong&, const RankPong&) = default;
};

using RankMessage = std::variant<RankChallenge, RankHello, RankWelcome, RankReady, RankRefusal, RankCopy, RankCancel,
                                 RankCopyDone, RankSettled, RankNotice, RankPing, RankPong>;

inline constexpr std::uint16_t kRankProtocol = 2;
inline constexpr std::size_t kMaxPayload = std::size_t{64} << 20;
// Of a peer that has not proven who it is: a rank that says hello, a leader that says welcome with its configuration.
inline constexpr std::size_t kMaxHelloPayload = 256;
inline constexpr std::size_t kMaxWelcomePayload = std::size_t{1} << 20;

// Appends one frame. Durations below zero go as zero.
// Requires: a payload of at most kMaxPayload, as many tags as pairs, as many checksums as states.
void encode(const RankMessage& message, std::uint32_t generation, std::vector<std::byte>& out);

// Cuts a stream of bytes into messages.
class RankDecoder {
 public:
  explicit RankDecoder(std::size_t max_payload = kMaxPayload) : max_payload_(max_payload) {}
  struct Received {
    std::uint32_t generation = 0;
    RankMessage message;
  };
  void feed(std::span<const std::byte> bytes);
  // std::nullopt if more bytes are needed. An error is for ever: the stream cannot be trusted any more. A frame that is too
  // large is refused by its header.
  [[nodiscard]] Result<std::optional<Received>> next();
  // From the next frame on.
  void set_max_payload(std::size_t bytes) { max_payload_ = bytes; }
  // Bytes that were fed and not taken.
  [[nodiscard]] std::size_t buffered() const { return bytes_.size() - read_; }
  // Bytes that a whole frame may take beyond those. Feed no more at once to keep the buffer below one frame.
  [[nodiscard]] std::size_t room() const;

 private:
  [[nodiscard]] Result<std::optional<Received>> cut();

  std::size_t max_payload_;
  std::vector<std::byte> bytes_;
  std::size_t read_ = 0;
  std::optional<Error> error_;
};

}  // namespace cairn
