// The proofs of RankHello and RankWelcome: each side proves that it knows the secret, without sending it.
//
// A proof is the HMAC-SHA256 with the secret over a text that names the message, the nonces of both sides and all other
// fields of the message. It is valid for one connection, because both nonces are new for each. The secret keeps out peers
// that do not know it. It does not protect later messages from an attacker that can change them on the network.
//
// Thread safety: any thread may call.
#pragma once

#include <string_view>

#include "cairn/wire/rank_message.h"

namespace cairn {

// Random bytes from the system.
[[nodiscard]] RankNonce make_nonce();

// The proof of the message; the present value of its field `proof` is ignored.
[[nodiscard]] Digest proof_of(const RankHello& hello, const RankNonce& leaders, std::string_view secret);
[[nodiscard]] Digest proof_of(const RankWelcome& welcome, const RankHello& hello, const RankNonce& leaders,
                              std::string_view secret);

// Whether the proof of the message is right. Takes the same time whichever byte is wrong.
[[nodiscard]] bool is_proven(const RankHello& hello, const RankNonce& leaders, std::string_view secret);
[[nodiscard]] bool is_proven(const RankWelcome& welcome, const RankHello& hello, const RankNonce& leaders,
                             std::string_view secret);

}  // namespace cairn
