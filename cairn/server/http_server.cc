#include "cairn/server/http_server.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <limits>
#include <utility>

#include "cairn/base/end_within.h"
#include "cairn/base/str_cat.h"
#include "cairn/server/api.h"
#include "cairn/server/http_listener.h"

namespace cairn {

namespace {

constexpr auto kLongestEnd = std::chrono::seconds(2);
constexpr std::size_t kShortestToken = 16;
constexpr int kFurtherPorts = 15;  // that are tried if the port of the configuration is taken

Result<std::string> read_token_file(const std::string& path) {
  const auto failed = [&path](const char* what) {
    return fail(ErrorCode::kIo, str_cat("cannot ", what, " http.token_file ", path, ": ", std::strerror(errno)));
  };
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file == -1) {
    return failed("open");
  }
  std::array<char, 4096> buffer;
  const ssize_t size = ::read(file, buffer.data(), buffer.size());
  const int error = errno;
  ::close(file);
  if (size < 0) {
    errno = error;
    return failed("read");
  }
  std::string text(buffer.data(), static_cast<std::size_t>(size));
  constexpr const char* kSpace = " \t\r\n";
  text.erase(text.find_last_not_of(kSpace) + 1);
  text.erase(0, std::min(text.find_first_not_of(kSpace), text.size()));
  return text;
}

Result<std::string> token_of(const HttpConfig& config) {
  if (config.token.empty() && config.token_file.empty()) {
    return std::string();
  }
  std::string token = config.token;
  if (token.empty()) {
    CAIRN_TRY_ASSIGN(token, read_token_file(config.token_file));
  }
  const bool is_printable =
      std::ranges::all_of(token, [](char c) { return static_cast<unsigned char>(c) > 0x20 && c < 0x7f; });
  if (token.size() < kShortestToken || !is_printable) {
    return fail(ErrorCode::kInvalidArgument,
                str_cat(config.token.empty() ? "http.token_file" : "http.token", " holds ", token.size(),
                        " characters; give at least ", kShortestToken,
                        " printable ones without spaces, for example those of `openssl rand -hex 32`"));
  }
  return token;
}

}  // namespace

struct HttpServer::Parts {
  explicit Parts(KvBlockManager manager, Api::Options options) : api(std::move(manager), std::move(options)) {}

  Api api;
  std::unique_ptr<HttpListener> listener;  // stops before `api` goes
  std::shared_ptr<std::atomic<bool>> is_draining;
};

HttpServer::HttpServer(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}

// A change may hang, on a disk that does: it keeps its thread and its copy of the manager.
HttpServer::~HttpServer() { (void)end_within(std::move(parts_), kLongestEnd); }

std::string HttpServer::address() const { return parts_->listener->address().to_string(); }
void HttpServer::begin_draining() const { parts_->is_draining->store(true, std::memory_order_relaxed); }

Result<std::unique_ptr<HttpServer>> HttpServer::start(const KvBlockManager& manager, std::shared_ptr<Log> log) {
  const HttpConfig& config = manager.config().http;
  if (config.listen.empty()) {
    return std::unique_ptr<HttpServer>();
  }
  Result<HttpAddress> address = HttpAddress::parse(config.listen);
  if (!address) {
    return fail(ErrorCode::kInvalidArgument, str_cat("http.listen: ", address.error().message));
  }
  CAIRN_TRY_ASSIGN(std::string token, token_of(config));
  if (!address->is_loopback() && token.empty()) {
    return fail(ErrorCode::kInvalidArgument,
                str_cat("http.listen is ", config.listen,
                        ", which other machines can reach, and there is no token; set http.token_file, or listen on "
                        "127.0.0.1"));
  }
  if (address->port != 0) {
    const std::uint64_t port = std::uint64_t{address->port} + manager.dp_rank();
    if (port > std::numeric_limits<std::uint16_t>::max()) {
      return fail(ErrorCode::kOutOfRange, str_cat("http.listen plus dp_rank is port ", port, "; give a lower port"));
    }
    address->port = static_cast<std::uint16_t>(port);
  }
  const auto is_draining = std::make_shared<std::atomic<bool>>(false);
  auto parts = std::make_unique<Parts>(manager, Api::Options{.token = std::move(token),
                                                             .log = std::move(log),
                                                             .is_loopback = address->is_loopback(),
                                                             .is_draining = is_draining});
  parts->is_draining = is_draining;
  // Ranks and pools of one engine have managers with the same configuration: each takes the next free port.
  const std::uint16_t first = address->port;
  while (parts->listener == nullptr) {
    Result<std::unique_ptr<HttpListener>> listener = HttpListener::start(
        {.address = *address,
         .handler = [&api = parts->api](HttpRequest&& request) { return api.handle(std::move(request)); },
         .tick = [&api = parts->api] { api.tick(); }});
    if (listener) {
      parts->listener = *std::move(listener);
    } else if (listener.error().code != ErrorCode::kUnavailable || first == 0 ||
               address->port - first == kFurtherPorts || address->port == std::numeric_limits<std::uint16_t>::max()) {
      return fail(listener.error().code, str_cat("http.listen: ", listener.error().message));
    } else {
      ++address->port;
    }
  }
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(parts)));
}

}  // namespace cairn
