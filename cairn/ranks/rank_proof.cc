#include "cairn/ranks/rank_proof.h"

#include <sys/random.h>

#include <cerrno>
#include <chrono>

#include "cairn/base/byte_stream.h"
#include "cairn/base/check.h"
#include "cairn/hash/hmac.h"

namespace cairn {
namespace {

// Each proof begins with its own text: one is never taken for the other.
constexpr std::string_view kHelloDomain = "cairn ranks 2: hello";
constexpr std::string_view kWelcomeDomain = "cairn ranks 2: welcome";

void put_talk(ByteWriter& out, std::string_view domain, const RankHello& hello, const RankNonce& leaders) {
  out.text(domain);
  out.put(leaders);
  out.put(hello.nonce);
  out.put(hello.rank);
  out.put(hello.ranks);
}

Digest prove(std::string_view secret, std::span<const std::byte> fields) {
  return hmac_sha256(std::as_bytes(std::span(secret)), fields);
}

template <PlainField T>
T draw() {
  T drawn;
  ssize_t got = 0;
  do {
    got = ::getrandom(&drawn, sizeof drawn, 0);
  } while (got < 0 && errno == EINTR);
  CAIRN_CHECK(got == static_cast<ssize_t>(sizeof drawn), "the system gives random bytes");
  return drawn;
}

}  // namespace

RankNonce make_nonce() { return draw<RankNonce>(); }

LeaderId make_leader_id() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return {.started = static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(now).count()),
          .random = draw<std::uint64_t>()};
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
  return prove(secret, fields);
}

bool is_proven(const RankHello& hello, const RankNonce& leaders, std::string_view secret) {
  return same_digest(hello.proof, proof_of(hello, leaders, secret));
}

bool is_proven(const RankWelcome& welcome, const RankHello& hello, const RankNonce& leaders, std::string_view secret) {
  return same_digest(welcome.proof, proof_of(welcome, hello, leaders, secret));
}

}  // namespace cairn
