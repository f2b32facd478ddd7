// RankSocket, RankListener: messages over a Unix or TCP connection, for the caller's poll loop.
//
// A socket sends and receives whole messages and never blocks. Bytes that the system does not take at once are queued: poll
// for writing while wants_write(), then flush(). When the descriptor is readable, call receive() until it returns
// std::nullopt.
//
// The host memory of a welcome goes over a Unix socket as a descriptor, which arrives with the message. Only the side that
// connected accepts descriptors.
//
// Thread safety: one thread at a time.
// Ownership:     the destructor closes the descriptors; child processes do not inherit them. A listener removes the file of
//                its Unix socket, which only this user can open, and takes over the file that a dead process left.
// Errors:        every error ends the connection. After an error of send() or flush(), receive() what is there before
//                closing: the peer may have said why. connect() does not retry.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cairn/base/clock.h"
#include "cairn/base/result.h"
#include "cairn/wire/owned_fd.h"
#include "cairn/wire/rank_address.h"
#include "cairn/wire/rank_message.h"

namespace cairn {

class RankSocket {
 public:
  // Bytes that may wait for a peer that does not read them.
  static constexpr std::size_t kMaxQueued = std::size_t{64} << 20;
  // The process at the other end of a Unix socket.
  struct Peer {
    std::uint32_t user = 0;
    std::uint64_t process = 0;  // 0: in another PID namespace
  };

  // Waits until `deadline` of steady_clock(), then returns kExpired; kUnavailable: nobody listens there. The lookup of a
  // host name may take longer than that.
  [[nodiscard]] static Result<RankSocket> connect(const RankAddress& address, TimePoint deadline);

  // Non-blocking.
  [[nodiscard]] int fd() const { return fd_.get(); }
  // kExhausted: kMaxQueued bytes are waiting. kIo: the connection is broken.
  [[nodiscard]] Status send(const RankMessage& message, std::uint32_t generation);
  [[nodiscard]] bool wants_write() const { return sent_ < queue_.size(); }
  [[nodiscard]] Status flush();
  // std::nullopt if no whole message has arrived. Errors come after all messages that arrived before: kIo if the connection
  // ended, kCorrupt as RankDecoder says.
  [[nodiscard]] Result<std::optional<RankDecoder::Received>> receive();

  // The largest payload that is accepted from the peer; kMaxPayload at first.
  void set_max_payload(std::size_t bytes) { decoder_.set_max_payload(bytes); }
  // Bytes that have arrived of a message that is not whole yet.
  [[nodiscard]] std::size_t buffered() const { return decoder_.buffered(); }

  // std::nullopt over TCP.
  [[nodiscard]] const std::optional<Peer>& peer() const { return peer_; }
  // Readable once the peer's process has ended, with all its threads. -1 if the process is unknown, or after take_process().
  [[nodiscard]] int process_fd() const { return process_.get(); }
  // For the caller to wait for the end of the process after the connection is closed.
  [[nodiscard]] OwnedFd take_process() { return std::move(process_); }

 private:
  friend class RankListener;
  explicit RankSocket(OwnedFd fd);
  [[nodiscard]] ssize_t send_some();
  [[nodiscard]] ssize_t receive_some();
  [[nodiscard]] Status take_memory(RankWelcome& welcome);

  OwnedFd fd_;
  std::optional<Peer> peer_;
  OwnedFd process_;
  std::vector<std::byte> queue_;
  std::size_t sent_ = 0;
  // Memory whose descriptor goes with the byte at this place of the queue.
  struct Attached {
    std::size_t at = 0;
    SharedMemoryPtr memory;
  };
  std::deque<Attached> attached_;
  bool accepts_descriptors_ = false;
  std::deque<OwnedFd> received_;
  std::vector<std::byte> chunk_;
  RankDecoder decoder_;
};

class RankListener {
 public:
  // kAlreadyExists: another process listens there. kIo: the system's reason.
  [[nodiscard]] static Result<RankListener> listen(const RankAddress& address);

  // Readable when a peer waits to be accepted.
  [[nodiscard]] int fd() const { return fd_.get(); }
  // std::nullopt if no peer waits. kExhausted: no descriptor is free; retry when some are closed.
  [[nodiscard]] Result<std::optional<RankSocket>> accept();
  // With the port that the system chose.
  [[nodiscard]] const RankAddress& address() const { return address_; }

 private:
  // The file of a Unix socket. The destructor removes it, unless another file has replaced it.
  class SocketFile {
   public:
    SocketFile() = default;
    explicit SocketFile(std::string path);
    SocketFile(SocketFile&& other) noexcept : path_(std::exchange(other.path_, {})), inode_(other.inode_) {}
    SocketFile& operator=(SocketFile&& other) noexcept;
    ~SocketFile();

   private:
    std::string path_;
    ino_t inode_ = 0;
  };

  RankListener(OwnedFd fd, RankAddress address, SocketFile file)
      : fd_(std::move(fd)), address_(std::move(address)), file_(std::move(file)) {}
  [[nodiscard]] static Result<RankListener> listen_unix(const RankAddress& address, const std::string& path);
  [[nodiscard]] static Result<RankListener> listen_tcp(const RankAddress& address, const RankAddress::Tcp& place);

  OwnedFd fd_;
  RankAddress address_;
  SocketFile file_;  // destroyed first: once this listener is closed, the path may belong to another
};

}  // namespace cairn
