// VirtualLinks: an executor in virtual time that copies nothing: blocks that are nowhere arrive after the time that the link
// between their tiers takes. For simulations of whole managers.
//
// There are four links: from and to the device, and from and to the disk. A transfer begins when the one before it on its link
// has ended, takes the latency and its bytes at the link's speed, and all its blocks are done at its end, when run() is called
// at or after that time.
//
// Thread safety: none; everything, the callbacks included, happens on the thread that simulates.
// Ownership:     the manager; the clock outlives it.
#pragma once

#include <array>
#include <cstddef>
#include <map>
#include <memory>
#include <string>

#include "cairn/base/clock.h"
#include "cairn/base/result.h"
#include "cairn/transfer/executor.h"
#include "cairn/transfer/transfer_ledger.h"

namespace cairn {

class VirtualLinks final : public TransferExecutor {
 public:
  struct Speeds {
    double host = 25e9;  // bytes per second, to and from the device
    double disk = 3.5e9;
    Duration latency = std::chrono::microseconds(100);
    bool shares_disk = false;  // reads wait for writes
  };
  VirtualLinks(const Clock& clock, const Speeds& speeds);
  ~VirtualLinks() override;

  [[nodiscard]] Result<TransferId> submit(Transfer&& transfer) override;
  void cancel(TransferId transfer) override;
  void check_deadlines() override;
  [[nodiscard]] bool can_move(const CopyPlan&) const override { return true; }
  [[nodiscard]] ExecutorLoad load() const override { return ledger_.load(); }
  [[nodiscard]] std::string describe() const override { return "virtual"; }

  // Of transfers that are submitted from now on.
  void set(const Speeds& speeds) { speeds_ = speeds; }
  // Ends what is due by the clock and runs its callbacks. Returns whether there was anything.
  bool run();
  // When run() has something to do next; TimePoint::max() if nothing is in flight.
  [[nodiscard]] TimePoint next_time() const;

 private:
  enum Link : std::uint8_t { kFromDisk, kToDisk, kFromDevice, kToDevice };
  [[nodiscard]] Link link_of(const CopyPlan& plan) const;

  const Clock& clock_;
  Speeds speeds_;
  TransferLedger ledger_;
  std::array<TimePoint, 4> free_at_ = {};                                // by link
  std::multimap<TimePoint, std::shared_ptr<ActiveTransfer>> in_flight_;  // by their end
};

}  // namespace cairn
