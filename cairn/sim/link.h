// Link: a wire between two tiers, in virtual time: bytes go in, and come out later. One direction.
//
// Does:     how transfers that are under way at once share the rate is its discipline:
//             kShared   all of them progress, each at the rate divided by their number (processor sharing)
//             kInOrder  one after the other, in the order in which they began (a FIFO lane)
//           The last byte arrives a latency after the link has sent it. The latency keeps no other transfer waiting: it
//           is how long the wire is, not how wide. A rate of 0 is no limit: everything is sent at once.
// Time:     nanoseconds. Inside, ends are kept to a millionth of one, so that the shares of many transfers add up to
//           the rate; an arrival is the first whole nanosecond at which the transfer is over (give or take 1/1024 ns,
//           which is above what rounding can add up to and below what anybody can see).
// Order:    transfers that end together arrive in the order in which they began.
// Owner:    a LinkNetwork, which moves time for all links that it has.
// Threads:  one.
// Costs:    start(): linear in the transfers under way, a few instructions each; the rest is constant for each arrival.
// Fails:    create(): a rate or a latency beyond what the arithmetic holds, by name.
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
  Duration latency{0};  // from the moment a byte is sent to its arrival
};

// 1 GB is 10^9 bytes. Nothing, or less, is no limit.
[[nodiscard]] std::uint64_t from_gigabytes_per_second(double gigabytes);

// Rises with each transfer of a network.
enum class TransferId : std::uint64_t {};

// Who is to be told.
class LinkUser {
 public:
  virtual ~LinkUser() = default;
  // The last byte is there. May start transfers; must not move time.
  virtual void on_arrived(TransferId transfer) = 0;
};

// Since the link was made.
struct LinkStats {
  std::uint64_t transfers = 0;  // that have arrived
  std::uint64_t bytes = 0;      // of those
  Duration busy{0};             // time in which it was sending, up to the last time it was looked at

  friend bool operator==(const LinkStats&, const LinkStats&) = default;
};

class Link {
 public:
  // More in one transfer than anybody has; what the arithmetic holds.
  static constexpr std::uint64_t kMaxTransferBytes = std::uint64_t{1} << 50;
  static constexpr std::uint64_t kMaxBytesPerSecond = std::uint64_t{1} << 50;

  struct Transfer {
    TransferId id{};
    LinkUser* user = nullptr;  // none: nobody waits for it any more
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

  // Requires: bytes <= kMaxTransferBytes; ids rise; no time earlier than one it was told before, and none later than
  // next_arrival().
  virtual void start(TimePoint now, const Transfer& transfer) = 0;
  // What arrives next if nothing else begins; takes it away. Time is then that of the arrival.
  [[nodiscard]] virtual std::optional<Arrival> next_arrival() const = 0;
  virtual Arrival take_arrival() = 0;
  // When the next transfer of this user arrives, if nothing else begins.
  [[nodiscard]] virtual std::optional<TimePoint> next_arrival_of(const LinkUser& user) const = 0;
  // The user will have gone: its transfers go on, for nobody.
  virtual void forget(const LinkUser& user) = 0;

  [[nodiscard]] const LinkStats& stats() const { return stats_; }
  [[nodiscard]] const LinkOptions& options() const { return options_; }

 protected:
  explicit Link(const LinkOptions& options) : options_(options) {}

  const LinkOptions options_;
  LinkStats stats_;
};

}  // namespace cairn::sim
