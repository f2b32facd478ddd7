#include "cairn/server/http_message.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <charconv>

#include "cairn/base/str_cat.h"

namespace cairn {

Result<HttpAddress> HttpAddress::parse(std::string_view text) {
  const auto wrong = [text](std::string_view why) {
    return fail(ErrorCode::kInvalidArgument, str_cat("'", text, "' is not an address: ", why,
                                                     "; give an IP address and a port, such as 127.0.0.1:9470"));
  };
  const std::size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) {
    return wrong("the port is missing");
  }
  std::string_view host = text.substr(0, colon);
  const std::string_view port = text.substr(colon + 1);
  HttpAddress address;
  const auto [end, failed] = std::from_chars(port.data(), port.data() + port.size(), address.port);
  if (port.empty() || failed != std::errc() || end != port.data() + port.size()) {
    return wrong("the port is not a number from 0 to 65535");
  }
  const bool is_v6 = host.starts_with('[') && host.ends_with(']');
  if (is_v6) {
    host = host.substr(1, host.size() - 2);
  }
  address.host = host.empty() || host == "localhost" ? "127.0.0.1" : std::string(host);
  in6_addr bytes{};
  if (inet_pton(is_v6 ? AF_INET6 : AF_INET, address.host.c_str(), &bytes) != 1) {
    return wrong(str_cat("'", host, "' is not an IP address"));
  }
  return address;
}

bool HttpAddress::is_loopback() const {
  in_addr v4{};
  if (inet_pton(AF_INET, host.c_str(), &v4) == 1) {
    return ntohl(v4.s_addr) >> 24 == 127;
  }
  in6_addr v6{};
  return inet_pton(AF_INET6, host.c_str(), &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6);
}

std::string HttpAddress::to_string() const {
  return host.find(':') == std::string::npos ? str_cat(host, ":", port) : str_cat("[", host, "]:", port);
}

}  // namespace cairn
