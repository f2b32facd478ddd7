// The proofs of RankHello and RankWelcome: that both sides know the secret, without telling it.
//
// Does:     HMAC-SHA256 with the secret over what the proof is for, the nonces of both sides and all other fields of the
//           message. A proof is good for one connection: the other side's nonce is new for each.
// Threads:  pure, but for make_nonce().
// Trust:    the secret keeps out who does not know it. What is said after the welcome is not protected from whoever can
//           change what goes over the wire.
#pragma once

#include <string_view>

#include "cairn/ranks/rank_message.h"

namespace cairn {

// From the system's source of randomness.
[[nodiscard]] RankNonce make_nonce();

// The proof that belongs into the message; what stands there now does not matter.
[[nodiscard]] Digest proof_of(const RankHello& hello, const RankNonce& leaders, std::string_view secret);
[[nodiscard]] Digest proof_of(const RankWelcome& welcome, const RankHello& hello, const RankNonce& leaders,
                              std::string_view secret);

// Whether the message proves it. Takes the same time wherever a proof is wrong.
[[nodiscard]] bool is_proven(const RankHello& hello, const RankNonce& leaders, std::string_view secret);
[[nodiscard]] bool is_proven(const RankWelcome& welcome, const RankHello& hello, const RankNonce& leaders,
                             std::string_view secret);

}  // namespace cairn
