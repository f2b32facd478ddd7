// RankSocket, RankListener: messages over a Unix or TCP connection, for a poll loop of the caller's.
//
// Does:     sends and receives whole messages without ever waiting. What the system does not take at once is queued:
//           poll for writing while wants_write(), then flush(). When the descriptor is readable call receive() until it
//           gives none.
// Owner:    the descriptors are closed with it, and in programs that this process starts. A listener removes the file of
//           its Unix socket, which only this user can open; one that is left over from a dead process is taken over.
// Threads:  one at a time.
// Fails:    every error ends the connection. After one of send() or flush() the peer may have said why: receive() what is
//           there before closing. connect() does not try again: a leader that is not there yet is the caller's patience.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cairn/base/clock.h"
#include "cairn/base/result.h"
#include "cairn/ranks/owned_fd.h"
#include "cairn/ranks/rank_address.h"
#include "cairn/ranks/rank_message.h"

namespace cairn {

class RankSocket {
 public:
  // A peer that lets so much pile up takes nothing any more.
  static constexpr std::size_t kMaxQueued = std::size_t{64} << 20;
  // Who connected, or listens, at the other end of a Unix socket.
  struct Peer {
    std::uint32_t user = 0;
    std::uint64_t process = 0;  // 0: of a container whose processes are not seen from here
  };

  // Waits for a host to answer until `deadline`, of steady_clock(). kUnavailable: nobody listens there; kExpired.
  // Looking up the name of a host may take longer; an address needs no looking up.
  [[nodiscard]] static Result<RankSocket> connect(const RankAddress& address, TimePoint deadline);

  // Never blocks.
  [[nodiscard]] int fd() const { return fd_.get(); }
  // kExhausted: kMaxQueued bytes are waiting. kIo: the connection is broken.
  [[nodiscard]] Status send(const RankMessage& message, std::uint32_t generation);
  [[nodiscard]] bool wants_write() const { return sent_ < queue_.size(); }
  [[nodiscard]] Status flush();
  // None: nothing more is there. kIo: "the peer closed the connection" and the like, after all that came whole before;
  // kCorrupt: as RankDecoder says.
  [[nodiscard]] Result<std::optional<RankDecoder::Received>> receive();

  // Frames of the peer may have so many bytes beside the header; kMaxPayload until it is set.
  void set_max_payload(std::size_t bytes) { decoder_.set_max_payload(bytes); }
  // Bytes that came and are no whole message yet.
  [[nodiscard]] std::size_t buffered() const { return decoder_.buffered(); }

  // None of TCP.
  [[nodiscard]] const std::optional<Peer>& peer() const { return peer_; }
  // Readable once the peer's process is dead, all its threads included. -1: cannot be known. Gone once taken.
  [[nodiscard]] int process_fd() const { return process_.get(); }
  // To wait for its death when the connection is closed.
  [[nodiscard]] OwnedFd take_process() { return std::move(process_); }

 private:
  friend class RankListener;
  explicit RankSocket(OwnedFd fd);

  OwnedFd fd_;
  std::optional<Peer> peer_;
  OwnedFd process_;
  std::vector<std::byte> queue_;
  std::size_t sent_ = 0;
  std::vector<std::byte> chunk_;
  RankDecoder decoder_;
};

class RankListener {
 public:
  // kAlreadyExists: somebody listens there. kIo: the system's reason. TCP: addresses of hosts may be used again at once.
  [[nodiscard]] static Result<RankListener> listen(const RankAddress& address);

  // Readable when somebody waits to be accepted.
  [[nodiscard]] int fd() const { return fd_.get(); }
  // None: nobody does. kExhausted: no more descriptors; try again when some are closed.
  [[nodiscard]] Result<std::optional<RankSocket>> accept();
  // With the port that the system chose.
  [[nodiscard]] const RankAddress& address() const { return address_; }

 private:
  // The file of a Unix socket: removed with its owner, unless another is in its place.
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
  SocketFile file_;  // goes first: once nobody listens, the path may be another's
};

}  // namespace cairn
