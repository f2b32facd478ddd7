// RankLine: a rank's line to its leader: over a socket, or to a group of this process.
//
// Does:     open() begins a talk, receive() gives what the leader says, in order, from the welcome on: what comes before
//           it (challenge, hello, proofs) is the line's own affair. After an error the line is closed, and may be opened
//           again.
// Owner:    a RankWorker.
// Threads:  open(), receive() and close() on one; send() and wake() on any, none of them waits.
// Fails:    open(): nobody listens. receive(): the connection broke, the leader cannot be trusted (another user's, or one
//           that does not know the secret), bytes that are no message. What is sent on a closed line is lost.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "cairn/base/clock.h"
#include "cairn/base/result.h"
#include "cairn/ranks/rank_address.h"
#include "cairn/ranks/rank_group.h"
#include "cairn/ranks/rank_message.h"

namespace cairn {

class RankLine {
 public:
  RankLine() = default;
  RankLine(const RankLine&) = delete;
  RankLine& operator=(const RankLine&) = delete;
  virtual ~RankLine() = default;

  // Requires: nothing that an earlier talk asked for touches any block: a leader of this process takes it as the proof.
  [[nodiscard]] virtual Status open() = 0;
  // None: nothing came for so long, or it was woken.
  [[nodiscard]] virtual Result<std::optional<RankDecoder::Received>> receive(Duration longest) = 0;
  // What was sent goes out first, as far as the system takes it; nothing more is said or heard.
  virtual void close() = 0;
  virtual void send(std::uint32_t generation, const RankMessage& message) = 0;
  virtual void wake() = 0;
};

struct RankLineOptions {
  std::uint32_t rank = 0;
  std::uint32_t ranks = 1;
  std::string secret = {};
};
[[nodiscard]] Result<std::unique_ptr<RankLine>> make_socket_line(const RankAddress& leader, RankLineOptions options);
[[nodiscard]] std::unique_ptr<RankLine> make_local_line(RankGroup& leader, std::uint32_t rank);

}  // namespace cairn
