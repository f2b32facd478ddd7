#include "cairn/sim/link.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <functional>
#include <utility>
#include <vector>

#include "cairn/base/check.h"
#include "cairn/base/str_cat.h"

namespace cairn::sim {
namespace {

__extension__ using Wide = __int128;

// Times are counted in ticks of 2^-20 ns, work in units of 10^-9 bytes: a link sends bytes_per_second units a
// nanosecond.
constexpr int kTickBits = 20;
constexpr Wide kTick = Wide{1} << kTickBits;
constexpr Wide kSlack = kTick >> 10;
constexpr std::int64_t kNanobytes = 1'000'000'000;

Wide ticks_of(TimePoint time) { return Wide{time.count()} * kTick; }
// The first whole nanosecond that is at most kSlack earlier.
TimePoint round_up(Wide ticks) {
  return TimePoint(static_cast<TimePoint::rep>((ticks - kSlack + kTick - 1) >> kTickBits));
}
Wide divide_up(Wide dividend, Wide divisor) { return (dividend + divisor - 1) / divisor; }

// What both disciplines share: a transfer that was sent arrives after the latency.
class SendingLink : public Link {
 public:
  [[nodiscard]] std::optional<Arrival> next_arrival() const final {
    return travelling_.empty() ? next_sent() : std::optional(travelling_.front());
  }

  Arrival take_arrival() final {
    const std::optional<Arrival> next = next_arrival();
    CAIRN_CHECK(next.has_value(), "a transfer is in flight");
    send_until(ticks_of(next->at - options_.latency));
    CAIRN_CHECK(!travelling_.empty() && travelling_.front().transfer.id == next->transfer.id,
                "the predicted transfer arrives");
    travelling_.pop_front();
    ++stats_.transfers;
    stats_.bytes += next->transfer.bytes;
    return *next;
  }

  void start(TimePoint now, const Transfer& transfer) final {
    send_until(ticks_of(now));
    if (options_.bytes_per_second == 0 || transfer.bytes == 0) {
      travel(ticks_of(now), transfer);
    } else {
      queue(transfer);
    }
  }

  [[nodiscard]] std::optional<TimePoint> next_arrival_of(const LinkUser& user) const final {
    for (const Arrival& arrival : travelling_) {
      if (arrival.transfer.user == &user) {
        return arrival.at;
      }
    }
    return next_sent_of(user);
  }

  void forget(const LinkUser& user) final {
    for (Arrival& arrival : travelling_) {
      arrival.transfer.forget(user);
    }
    forget_sending(user);
  }

 protected:
  using Link::Link;

  // Advances time; calls travel() for each transfer that was sent until then.
  virtual void send_until(Wide ticks) = 0;
  virtual void queue(const Transfer& transfer) = 0;
  [[nodiscard]] virtual std::optional<Arrival> next_sent() const = 0;
  [[nodiscard]] virtual std::optional<TimePoint> next_sent_of(const LinkUser& user) const = 0;
  virtual void forget_sending(const LinkUser& user) = 0;

  [[nodiscard]] Wide rate() const { return static_cast<Wide>(options_.bytes_per_second); }
  [[nodiscard]] TimePoint arrival_of(Wide sent) const { return round_up(sent) + options_.latency; }
  // The transfer was sent completely at this time.
  void travel(Wide sent, const Transfer& transfer) {
    const Arrival arrival{arrival_of(sent), transfer};
    const auto earlier = [](const Arrival& a, const Arrival& b) {
      return std::pair(a.at, a.transfer.id) < std::pair(b.at, b.transfer.id);
    };
    travelling_.insert(std::ranges::upper_bound(travelling_, arrival, earlier), arrival);
  }
  void count_busy(Wide ticks) {
    busy_ += ticks;
    stats_.busy = Duration(static_cast<Duration::rep>(busy_ >> kTickBits));
  }

 private:
  std::deque<Arrival> travelling_;  // in order of arrival
  Wide busy_ = 0;
};

class SharedLink final : public SendingLink {
 public:
  explicit SharedLink(const LinkOptions& options) : SendingLink(options) {}

 private:
  struct Sending {
    Wide end;  // value of served_ at which this transfer has been sent
    Transfer transfer;
  };

  void send_until(Wide ticks) override {
    while (!sending_.empty()) {
      const Wide end = end_of_first();
      if (end - kSlack > ticks) {
        break;
      }
      count_busy(end - now_);
      now_ = end;
      served_ = std::max(served_, sending_.back().end);
      travel(end, sending_.back().transfer);
      sending_.pop_back();
    }
    if (now_ >= ticks) {
      return;
    }
    if (!sending_.empty()) {
      served_ += rate() * (ticks - now_) / (Wide{static_cast<std::int64_t>(sending_.size())} * kTick);
      count_busy(ticks - now_);
    }
    now_ = ticks;
  }

  void queue(const Transfer& transfer) override {
    const Sending sending{served_ + static_cast<Wide>(transfer.bytes) * kNanobytes, transfer};
    const auto ends_later = [](const Sending& a, const Sending& b) {
      return std::pair(a.end, a.transfer.id) > std::pair(b.end, b.transfer.id);
    };
    sending_.insert(std::ranges::upper_bound(sending_, sending, ends_later), sending);
  }

  [[nodiscard]] std::optional<Arrival> next_sent() const override {
    if (sending_.empty()) {
      return std::nullopt;
    }
    Wide now = end_of_first();
    Wide served = std::max(served_, sending_.back().end);
    Arrival next{arrival_of(now), sending_.back().transfer};
    // Transfers that end later in the same nanosecond arrive together with this one, in the order in which they began.
    for (std::size_t left = sending_.size() - 1; left > 0; --left) {
      const Sending& other = sending_[left - 1];
      now += time_for(other.end - served, left);
      served = std::max(served, other.end);
      if (arrival_of(now) != next.at) {
        break;
      }
      if (other.transfer.id < next.transfer.id) {
        next.transfer = other.transfer;
      }
    }
    return next;
  }

  [[nodiscard]] std::optional<TimePoint> next_sent_of(const LinkUser& user) const override {
    Wide served = served_;
    Wide now = now_;
    for (std::size_t left = sending_.size(); left > 0; --left) {
      const Sending& first = sending_[left - 1];
      now += time_for(first.end - served, left);
      served = std::max(served, first.end);
      if (first.transfer.user == &user) {
        return arrival_of(now);
      }
    }
    return std::nullopt;
  }

  void forget_sending(const LinkUser& user) override {
    for (Sending& sending : sending_) {
      sending.transfer.forget(user);
    }
  }

  // How long it takes to send `work` of each of `transfers` transfers. `work` may be slightly negative by rounding.
  [[nodiscard]] Wide time_for(Wide work, std::size_t transfers) const {
    return work <= 0 ? 0 : divide_up(work * Wide{static_cast<std::int64_t>(transfers)} * kTick, rate());
  }
  [[nodiscard]] Wide end_of_first() const { return now_ + time_for(sending_.back().end - served_, sending_.size()); }

  std::vector<Sending> sending_;  // in reverse order of their ends
  Wide served_ = 0;               // work sent of each transfer in flight, accumulated over time
  Wide now_ = 0;
};

class InOrderLink final : public SendingLink {
 public:
  explicit InOrderLink(const LinkOptions& options) : SendingLink(options) {}

 private:
  struct Sending {
    Wide end;
    Transfer transfer;
  };

  void send_until(Wide ticks) override {
    while (!sending_.empty() && sending_.front().end - kSlack <= ticks) {
      count_busy(sending_.front().end - now_);
      now_ = sending_.front().end;
      travel(now_, sending_.front().transfer);
      sending_.pop_front();
    }
    if (now_ < ticks) {
      count_busy(sending_.empty() ? 0 : ticks - now_);
      now_ = ticks;
    }
  }

  void queue(const Transfer& transfer) override {
    const Wide begin = sending_.empty() ? now_ : sending_.back().end;
    sending_.push_back({begin + divide_up(static_cast<Wide>(transfer.bytes) * kNanobytes * kTick, rate()), transfer});
  }

  [[nodiscard]] std::optional<Arrival> next_sent() const override {
    if (sending_.empty()) {
      return std::nullopt;
    }
    return Arrival{arrival_of(sending_.front().end), sending_.front().transfer};
  }

  [[nodiscard]] std::optional<TimePoint> next_sent_of(const LinkUser& user) const override {
    for (const Sending& sending : sending_) {
      if (sending.transfer.user == &user) {
        return arrival_of(sending.end);
      }
    }
    return std::nullopt;
  }

  void forget_sending(const LinkUser& user) override {
    for (Sending& sending : sending_) {
      sending.transfer.forget(user);
    }
  }

  std::deque<Sending> sending_;
  Wide now_ = 0;
};

}  // namespace

std::uint64_t from_gigabytes_per_second(double gigabytes) {
  // A tiny rate is rounded up to 1, because 0 would mean no limit.
  return gigabytes > 0 ? std::max<std::uint64_t>(static_cast<std::uint64_t>(std::llround(gigabytes * 1e9)), 1) : 0;
}

Result<std::unique_ptr<Link>> Link::create(const LinkOptions& options) {
  if (options.bytes_per_second > kMaxBytesPerSecond) {
    return fail(ErrorCode::kInvalidArgument,
                str_cat("a link of ", options.bytes_per_second, " bytes per second is too fast; give at most ",
                        kMaxBytesPerSecond, ", or 0 for no limit"));
  }
  if (options.latency < Duration(0)) {
    return fail(ErrorCode::kInvalidArgument, str_cat("the latency of a link is ", options.latency.count(),
                                                     " ns, which is negative; give 0 or more"));
  }
  if (options.discipline == LinkDiscipline::kShared) {
    return std::unique_ptr<Link>(std::make_unique<SharedLink>(options));
  }
  return std::unique_ptr<Link>(std::make_unique<InOrderLink>(options));
}

}  // namespace cairn::sim
