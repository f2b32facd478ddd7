#include "cairn/wire/rank_proof.h"

#include "cairn/base/byte_stream.h"
#include "cairn/hash/hmac.h"
#include "cairn/hash/secret_bytes.h"

namespace cairn {
namespace {

// Each kind of proof begins with its own text, so that one cannot be used as the other.
constexpr std::string_view kHelloDomain = "cairn ranks 3: hello";
constexpr std::string_view kWelcomeDomain = "cairn ranks 3: welcome";

void put_talk(ByteWriter& out, std::string_view domain, const RankHello& hello, const RankNonce& leaders) {
  out.text(domain);
  out.put(leaders);
  out.put(hello.nonce);
  put_claim(out, hello.claim);
}

Digest prove(std::string_view secret, std::span<const std::byte> fields) {
  return hmac_sha256(std::as_bytes(std::span(secret)), fields);
}

}  // namespace

RankNonce make_nonce() {
  RankNonce nonce;
  internal::fill_random(nonce);
  return nonce;
}

Digest proof_of(const RankHello& hello, const RankNonce& leaders, std::string_view secret) {
  std::vector<std::byte> fields;
  ByteWriter out(fields);
  put_talk(out, kHelloDomain, hello, leaders);
  return prove(secret, fields);
}

Digest proof_of(const RankWelcome& welcome, const RankHello& hello, const RankNonce& leaders, std::string_view secret) {
  std::vector<std::byte> fields;
  ByteWriter out(fields);
  put_talk(out, kWelcomeDomain, hello, leaders);
  out.put(welcome.leader);
  out.put(welcome.generation);
  out.put(welcome.heartbeat.count());
  out.text(welcome.config);
  out.put(welcome.store);
  out.put(static_cast<std::uint8_t>(welcome.has_host_memory));
  return prove(secret, fields);
}

bool is_proven(const RankHello& hello, const RankNonce& leaders, std::string_view secret) {
  return same_digest(hello.proof, proof_of(hello, leaders, secret));
}

bool is_proven(const RankWelcome& welcome, const RankHello& hello, const RankNonce& leaders, std::string_view secret) {
  return same_digest(welcome.proof, proof_of(welcome, hello, leaders, secret));
}

}  // namespace cairn
