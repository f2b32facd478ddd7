// Channel: sends and receives whole messages between the engine and one of its rank processes, over a socket. A message
// is a kind and some bytes, built by MessageWriter and read by MessageReader, which never reads beyond its end.
//
// Thread safety: one thread at a time.
// Ownership: owns the socket.
// Errors: kUnavailable if the other side is gone, kExpired if it neither takes nor sends anything for `silence`,
// kCorrupt if its bytes are not a message. After an error the channel cannot be used any more.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>
#include <vector>

#include "cairn/base/result.h"

namespace cairn::engine {

enum class MessageKind : std::uint32_t {
  kConfig,   // to a rank: RankConfig
  kReady,    // from a rank
  kStep,     // to a rank: StepInput
  kHeads,    // from a rank: the outputs of its heads; to a rank: those of all heads
  kHidden,   // from the first rank of a pipeline stage, to the ranks of the next: the output of the stage
  kOutput,   // from a rank: StepOutput
  kStop,     // to a rank
  kStopped,  // from a rank: its last message
};

class MessageWriter {
 public:
  template <typename T>
    requires std::is_trivially_copyable_v<T>
  void put(const T& value) {
    put_bytes(std::as_bytes(std::span(&value, 1)));
  }
  template <typename T>
    requires std::is_trivially_copyable_v<T>
  void put_all(std::span<const T> values) {
    put(static_cast<std::uint64_t>(values.size()));
    put_bytes(std::as_bytes(values));
  }
  [[nodiscard]] std::span<const std::byte> bytes() const { return bytes_; }

 private:
  // Not insert(): g++ 12 warns of an overflow in it that cannot happen.
  void put_bytes(std::span<const std::byte> bytes) {
    bytes_.resize(bytes_.size() + bytes.size());
    std::ranges::copy(bytes, bytes_.end() - static_cast<std::ptrdiff_t>(bytes.size()));
  }

  std::vector<std::byte> bytes_;
};

// Fields beyond the end read as zero or empty, and complete() is false then.
class MessageReader {
 public:
  explicit MessageReader(std::span<const std::byte> bytes) : rest_(bytes) {}

  template <typename T>
    requires std::is_trivially_copyable_v<T>
  [[nodiscard]] T get() {
    T value{};
    get_bytes(std::as_writable_bytes(std::span(&value, 1)));
    return value;
  }
  template <typename T>
    requires std::is_trivially_copyable_v<T>
  [[nodiscard]] std::vector<T> get_all() {
    const auto count = get<std::uint64_t>();
    if (count > rest_.size() / sizeof(T)) {
      good_ = false;
      return {};
    }
    std::vector<T> values(count);
    get_bytes(std::as_writable_bytes(std::span(values)));
    return values;
  }
  // Everything was read, and nothing was missing.
  [[nodiscard]] bool complete() const { return good_ && rest_.empty(); }

 private:
  void get_bytes(std::span<std::byte> into) {
    if (into.size() > rest_.size()) {
      good_ = false;
      return;
    }
    if (!into.empty()) {
      std::memcpy(into.data(), rest_.data(), into.size());
    }
    rest_ = rest_.subspan(into.size());
  }

  std::span<const std::byte> rest_;
  bool good_ = true;
};

struct Message {
  MessageKind kind{};
  std::vector<std::byte> bytes;
};

class Channel {
 public:
  // Takes the socket. `silence` is how long the other side may be silent; zero: no limit. The end of the other side is
  // noticed in any case.
  Channel(int socket, std::chrono::seconds silence);
  ~Channel();
  Channel(Channel&& other) noexcept;
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;
  Channel& operator=(Channel&&) = delete;

  [[nodiscard]] Status send(MessageKind kind, std::span<const std::byte> bytes);
  [[nodiscard]] Result<Message> receive();
  // The next message must be of that kind.
  [[nodiscard]] Result<std::vector<std::byte>> receive(MessageKind kind);

 private:
  [[nodiscard]] Status receive_bytes(std::span<std::byte> into);

  int socket_;
};

}  // namespace cairn::engine
