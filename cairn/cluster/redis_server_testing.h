// RedisServer: a redis-server of the system on a free port of 127.0.0.1, for one test. It is killed with the test, however that
// ends.
#pragma once

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cairn/base/str_cat.h"

namespace cairn::testing {

// A port that nobody listens on now; from `first` on, if it is not 0.
inline std::uint16_t free_port(std::uint16_t first = 0) {
  const int file = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(first);
  socklen_t size = sizeof(address);
  while (bind(file, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0 && first != 0) {
    address.sin_port = htons(++first);
  }
  (void)getsockname(file, reinterpret_cast<sockaddr*>(&address), &size);
  ::close(file);
  return ntohs(address.sin_port);
}

class RedisServer {
 public:
  [[nodiscard]] static bool is_installed() {
    for (const char* path : {"/usr/bin/redis-server", "/usr/bin/valkey-server", "/usr/local/bin/redis-server"}) {
      if (access(path, X_OK) == 0) {
        return true;
      }
    }
    return false;
  }
  // std::nullopt if it does not listen within a few seconds.
  [[nodiscard]] static std::optional<RedisServer> start(std::vector<std::string> more = {}, std::uint16_t port = 0) {
    RedisServer server;
    server.port_ = port != 0 ? port : free_port();
    std::vector<std::string> arguments = {path(),   "--bind", "127.0.0.1", "--port",      std::to_string(server.port_),
                                          "--save", "",       "--dir",     server.folder_};
    arguments.insert(arguments.end(), more.begin(), more.end());
    server.run(arguments);
    return server.is_listening() ? std::optional(std::move(server)) : std::nullopt;
  }
  RedisServer(RedisServer&& other) noexcept
      : folder_(std::exchange(other.folder_, {})), port_(other.port_), process_(std::exchange(other.process_, -1)) {}
  RedisServer& operator=(RedisServer&&) = delete;
  RedisServer(const RedisServer&) = delete;
  RedisServer& operator=(const RedisServer&) = delete;
  ~RedisServer() {
    kill();
    if (!folder_.empty()) {
      std::filesystem::remove_all(folder_);
    }
  }

  [[nodiscard]] std::uint16_t port() const { return port_; }
  [[nodiscard]] std::string url() const { return str_cat("redis://127.0.0.1:", port_); }
  void kill() {
    if (process_ > 0) {
      ::kill(process_, SIGKILL);
      ::kill(process_, SIGCONT);
      waitpid(process_, nullptr, 0);
      process_ = -1;
    }
  }
  // It takes connections and answers nothing until resume().
  void pause() const { ::kill(process_, SIGSTOP); }
  void resume() const { ::kill(process_, SIGCONT); }

 private:
  RedisServer() : folder_(std::filesystem::temp_directory_path() / "cairn-redis-XXXXXX") {
    (void)!mkdtemp(folder_.data());
  }

  static std::string path() {
    return access("/usr/bin/redis-server", X_OK) == 0    ? "/usr/bin/redis-server"
           : access("/usr/bin/valkey-server", X_OK) == 0 ? "/usr/bin/valkey-server"
                                                         : "/usr/local/bin/redis-server";
  }
  void run(const std::vector<std::string>& arguments) {
    std::vector<char*> raw;
    for (const std::string& argument : arguments) {
      raw.push_back(const_cast<char*>(argument.c_str()));
    }
    raw.push_back(nullptr);
    const pid_t parent = getpid();
    process_ = fork();
    if (process_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (getppid() != parent) {
        _exit(1);
      }
      const int nowhere = open("/dev/null", O_RDWR | O_CLOEXEC);
      dup2(nowhere, STDOUT_FILENO);
      dup2(nowhere, STDERR_FILENO);
      execv(raw.front(), raw.data());
      _exit(127);
    }
  }
  [[nodiscard]] bool is_listening() const {
    for (int attempt = 0; attempt < 1000; ++attempt) {
      const int file = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
      sockaddr_in address{};
      address.sin_family = AF_INET;
      address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
      address.sin_port = htons(port_);
      const bool connected = connect(file, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
      ::close(file);
      if (connected) {
        return true;
      }
      if (waitpid(process_, nullptr, WNOHANG) != 0) {
        return false;
      }
      (void)poll(nullptr, 0, 10);
    }
    return false;
  }

  std::string folder_;
  std::uint16_t port_ = 0;
  pid_t process_ = -1;
};

}  // namespace cairn::testing
