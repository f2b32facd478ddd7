#include "cairn/wire/rank_address.h"

#include <sys/un.h>

#include <charconv>
#include <chrono>
#include <span>
#include <system_error>

#include "cairn/base/str_cat.h"
#include "cairn/hash/secret_bytes.h"

namespace cairn {
namespace {

constexpr std::string_view kUnix = "unix:";
constexpr std::string_view kTcp = "tcp:";
constexpr std::size_t kLongestPath = sizeof(sockaddr_un::sun_path) - 1;

Unexpected<Error> refuse(std::string_view text, std::string_view why) {
  return fail(ErrorCode::kInvalidArgument,
              str_cat("invalid leader address '", text, "': ", why, "; give unix:/path/of.sock or tcp:host:port"));
}

Result<RankAddress> parse_unix(std::string_view text) {
  const std::string_view path = text.substr(kUnix.size());
  if (path.empty()) return refuse(text, "the path is missing");
  if (path.find('\0') != std::string_view::npos) return refuse(text, "the path has a zero byte");
  if (path.size() > kLongestPath) {
    return refuse(text, str_cat("the path has ", path.size(), " bytes, a Unix socket allows ", kLongestPath));
  }
  return RankAddress{RankAddress::Unix{std::string(path)}};
}

// An IPv6 address is written in brackets, because it has colons itself.
Result<RankAddress> parse_tcp(std::string_view text) {
  const std::string_view place = text.substr(kTcp.size());
  const std::size_t colon = place.rfind(':');
  if (colon == std::string_view::npos) return refuse(text, "the port is missing");
  std::string_view host = place.substr(0, colon);
  const bool in_brackets = host.size() >= 2 && host.front() == '[' && host.back() == ']';
  if (in_brackets) host = host.substr(1, host.size() - 2);
  if (host.empty()) return refuse(text, "the host is missing");
  if (host.find_first_of(std::string_view("[]\0", 3)) != std::string_view::npos) {
    return refuse(text, "invalid host name");
  }
  if (!in_brackets && host.find(':') != std::string_view::npos)
    return refuse(text, "write an IPv6 address in brackets");
  const std::string_view digits = place.substr(colon + 1);
  std::uint16_t port = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), port);
  if (error != std::errc() || end != digits.data() + digits.size()) {
    return refuse(text, str_cat("invalid port '", digits, "'"));
  }
  return RankAddress{RankAddress::Tcp{std::string(host), port}};
}

}  // namespace

Result<RankAddress> RankAddress::parse(std::string_view text) {
  if (text.starts_with(kUnix)) return parse_unix(text);
  if (text.starts_with(kTcp)) return parse_tcp(text);
  return refuse(text, "it begins with neither unix: nor tcp:");
}

std::string RankAddress::to_string() const {
  if (const auto* at = std::get_if<Unix>(&place)) return str_cat(kUnix, at->path);
  const Tcp& at = *std::get_if<Tcp>(&place);
  const bool in_brackets = at.host.find(':') != std::string::npos;
  return str_cat(kTcp, in_brackets ? "[" : "", at.host, in_brackets ? "]:" : ":", at.port);
}

LeaderId make_leader_id() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  LeaderId id{.started = static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(now).count())};
  internal::fill_random(std::as_writable_bytes(std::span(&id.random, 1)));
  return id;
}

}  // namespace cairn
