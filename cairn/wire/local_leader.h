// LocalLeader: how a rank joins a leader of its own process, without a socket. Implemented by Leader (leader/leader.h).
//
// It has no handshake: the first message is the welcome. Otherwise the messages are those of a socket, in the same order.
//
// Thread safety: any thread may call.
// Ownership:     the leader outlives its ports.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "cairn/base/result.h"
#include "cairn/wire/rank_message.h"

namespace cairn {

class LocalLeader {
 public:
  // Gets the leader's messages, one at a time, on a thread of the leader. May not wait, and may be called before join()
  // returns. After a refusal nothing more is delivered.
  using Deliver = std::function<void(std::uint32_t generation, const RankMessage&)>;

  // The rank's end of the connection. Its destructor tells the leader that nothing of this rank touches any block:
  // destroy it when the last transfer has ended. Nothing is delivered once the destructor has returned.
  class Port {
   public:
    Port() = default;
    Port(const Port&) = delete;
    Port& operator=(const Port&) = delete;
    virtual ~Port() = default;
    virtual void send(std::uint32_t generation, const RankMessage& message) = 0;
  };

  // kAlreadyExists: the rank has joined already. kInvalidArgument: the leader has another grid of ranks.
  [[nodiscard]] virtual Result<std::unique_ptr<Port>> join(const RankClaim& claim, Deliver deliver) = 0;

 protected:
  ~LocalLeader() = default;
};

}  // namespace cairn
