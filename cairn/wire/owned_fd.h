// OwnedFd: a file descriptor that its destructor closes.
//
// Thread safety: one thread at a time.
#pragma once

#include <unistd.h>

#include <utility>

namespace cairn {

class OwnedFd {
 public:
  OwnedFd() = default;
  explicit OwnedFd(int fd) : fd_(fd) {}
  OwnedFd(OwnedFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  OwnedFd& operator=(OwnedFd&& other) noexcept {
    const OwnedFd old(std::exchange(fd_, std::exchange(other.fd_, -1)));
    return *this;
  }
  ~OwnedFd() {
    if (fd_ >= 0) ::close(fd_);
  }

  // -1 if there is none.
  [[nodiscard]] int get() const { return fd_; }
  // The caller closes it.
  [[nodiscard]] int release() { return std::exchange(fd_, -1); }
  explicit operator bool() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

}  // namespace cairn
