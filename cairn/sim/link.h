// Link: carries transfers between two tiers in one direction, in virtual time.
//
// The discipline says how transfers in flight share the rate:
//   kShared   all make progress, each at the rate divided by their number (processor sharing)
//   kInOrder  one after the other, in the order in which they began (FIFO)
// The last byte arrives `latency` after it was sent. The latency does not occupy the link. A rate of 0 means no limit:
// all bytes are sent at once.
//
// Times are in nanoseconds. Ends are computed to 2^-20 ns, so that the shares of many transfers add up to the rate, and
// reported as the first whole nanosecond at which the transfer has ended. (A tolerance of 1/1024 ns absorbs rounding
// errors.) Transfers that end in the same nanosecond arrive in the order in which they began.
//
// Thread safety: not thread-safe.
// Ownership:  owned by a LinkNetwork, which advances time for all its links.
// Errors:     create() fails if the rate is too large or the latency negative.
// Complexity: start() is linear in the transfers in flight, a few instructions each; an arrival takes constant time.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "cairn/base/clock.h"
#include "cairn/base/result.h"

namespace cairn::sim {

enum class LinkDiscipline : std::uint8_t { kShared, kInOrder };

struct LinkOptions {
  std::uint64_t bytes_per_second = 0;  // 0: no limit
  LinkDiscipline discipline = LinkDiscipline::kShared;
  Duration latency{0};  // from sending a byte to its arrival
};

// 1 GB is 10^9 bytes. 0 or less returns 0: no limit.
[[nodiscard]] std::uint64_t from_gigabytes_per_second(double gigabytes);

// Increases with each transfer of a network.
enum class TransferId : std::uint64_t {};

// Starts transfers and is notified of their arrival.
class LinkUser {
 public:
  virtual ~LinkUser() = default;
  // The last byte has arrived. May start transfers; must not advance time.
  virtual void on_arrived(TransferId transfer) = 0;
};

// Totals since the link was created.
struct LinkStats {
  std::uint64_t transfers = 0;  // arrived
  std::uint64_t bytes = 0;      // of the arrived transfers
  Duration busy{0};             // time spent sending, up to the last start or arrival

  friend bool operator==(const LinkStats&, const LinkStats&) = default;
};

class Link {
 public:
  // Limits of the arithmetic.
  static constexpr std::uint64_t kMaxTransferBytes = std::uint64_t{1} << 50;
  static constexpr std::uint64_t kMaxBytesPerSecond = std::uint64_t{1} << 50;

  struct Transfer {
    TransferId id{};
    LinkUser* user = nullptr;  // null: the user has left
    std::uint64_t bytes = 0;

    void forget(const LinkUser& gone) { user = user == &gone ? nullptr : user; }
  };
  struct Arrival {
    TimePoint at{};
    Transfer transfer;
  };

  [[nodiscard]] static Result<std::unique_ptr<Link>> create(const LinkOptions& options);
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;
  virtual ~Link() = default;

  // Requires: bytes <= kMaxTransferBytes; ids increase; `now` is not before the time of an earlier call and not after
  // next_arrival().
  virtual void start(TimePoint now, const Transfer& transfer) = 0;
  // The next arrival, if no other transfer begins before. take_arrival() removes it and advances time to it.
  [[nodiscard]] virtual std::optional<Arrival> next_arrival() const = 0;
  virtual Arrival take_arrival() = 0;
  // When the next transfer of this user arrives, if no other transfer begins before.
  [[nodiscard]] virtual std::optional<TimePoint> next_arrival_of(const LinkUser& user) const = 0;
  // The user's transfers continue, without a notification of their arrival.
  virtual void forget(const LinkUser& user) = 0;

  [[nodiscard]] const LinkStats& stats() const { return stats_; }
  [[nodiscard]] const LinkOptions& options() const { return options_; }

 protected:
  explicit Link(const LinkOptions& options) : options_(options) {}

  const LinkOptions options_;
  LinkStats stats_;
};

}  // namespace cairn::sim
