// HttpRequest, HttpResponse: what a client sends and gets, without the transport. HttpAddress: where a server listens.
//
// Thread safety: plain values.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "cairn/base/result.h"

namespace cairn {

struct HttpAddress {
  std::string host = {};  // an IPv4 or IPv6 address
  std::uint16_t port = 0;

  // "127.0.0.1:9470", "[::1]:9470", "localhost:9470", ":9470" (this machine only); port 0: the system chooses one.
  [[nodiscard]] static Result<HttpAddress> parse(std::string_view text);
  // Whether only programs of this machine can connect.
  [[nodiscard]] bool is_loopback() const;
  [[nodiscard]] std::string to_string() const;  // parse() reads it back
};

struct HttpRequest {
  std::string method = {};         // "GET"
  std::string path = {};           // "/v1/status", without the query
  std::string query = {};          // "limit=10", as it was sent
  std::string authorization = {};  // the header, empty if there is none
  std::string host = {};           // the header Host
  std::string peer = {};           // the address of the client, without the port
  std::string body = {};
};

struct HttpResponse {
  int status = 200;
  std::string content_type = "application/json";
  std::string body = {};
  std::vector<std::pair<std::string, std::string>> headers = {};
};

// The answer to a request: now, or by a function that may wait for I/O and is called on another thread.
using HttpAnswer = std::variant<HttpResponse, std::function<HttpResponse()>>;

}  // namespace cairn
