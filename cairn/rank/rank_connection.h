// RankConnection: a rank's connection to its leader, over a socket or to a leader of this process.
//
// open() connects, receive() returns the leader's messages in order, from the welcome on; the connection handles the
// handshake before it (challenge, hello, proofs). After an error the connection is closed, and may be opened again.
//
// Thread safety: open(), receive() and close() on one thread; send() and wake() on any, neither of them waits.
// Errors:        open(): nobody listens. receive(): the connection broke, the leader cannot be trusted (it belongs to another
//                user, or does not know the secret), or a message is corrupt. Messages that are sent while the connection is
//                closed are lost.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "cairn/base/clock.h"
#include "cairn/base/result.h"
#include "cairn/wire/local_leader.h"
#include "cairn/wire/rank_address.h"
#include "cairn/wire/rank_message.h"

namespace cairn {

class RankConnection {
 public:
  RankConnection() = default;
  RankConnection(const RankConnection&) = delete;
  RankConnection& operator=(const RankConnection&) = delete;
  virtual ~RankConnection() = default;

  // Requires: no transfer of an earlier connection touches any block; a leader of this process takes the call as the proof.
  [[nodiscard]] virtual Status open() = 0;
  // std::nullopt if nothing came within `longest`, or wake() was called.
  [[nodiscard]] virtual Result<std::optional<RankDecoder::Received>> receive(Duration longest) = 0;
  // Sends what is queued, as far as the system takes it, and closes.
  virtual void close() = 0;
  virtual void send(std::uint32_t generation, const RankMessage& message) = 0;
  virtual void wake() = 0;
};

[[nodiscard]] Result<std::unique_ptr<RankConnection>> make_socket_connection(const RankAddress& leader,
                                                                             const RankClaim& claim,
                                                                             std::string secret);
[[nodiscard]] std::unique_ptr<RankConnection> make_local_connection(LocalLeader& leader, const RankClaim& claim);

}  // namespace cairn
