// LinkExecutor: the executor of a simulated manager: copies nothing; blocks arrive after the time that the link between their
// tiers takes (link.h). Faults of a tier happen at given times.
//
// | fault    | copies from and to the tier, while it lasts                           |
// | kStall   | arrive when the fault is over, unless their deadline comes before     |
// | kFail    | fail at the time at which they would arrive                           |
// | kGarbage | arrive; blocks that are read have wrong bytes                         |
//
// Thread safety: not thread-safe; callbacks run in run().
// Ownership:     the manager's. The site outlives it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cairn/base/clock.h"
#include "cairn/base/ids.h"
#include "cairn/base/result.h"
#include "cairn/sim/link_network.h"
#include "cairn/sim/replay.h"
#include "cairn/sim/virtual_site.h"
#include "cairn/transfer/executor.h"
#include "cairn/transfer/transfer_ledger.h"

namespace cairn::sim {

// The links of one worker; those of a tier that it does not have are not used.
struct WorkerLinks {
  struct Pair {
    LinkId down{};  // into the tier
    LinkId up{};    // out of it
  };
  Pair host;  // between device and host memory
  Pair disk;  // between the disk and everything above
};

class LinkExecutor final : public TransferExecutor, private LinkUser {
 public:
  struct Options {
    VirtualSite* site = nullptr;
    std::size_t member = 0;  // of the site: woken when a transfer arrives
    WorkerLinks links = {};
    std::vector<TierFault> faults = {};
  };
  explicit LinkExecutor(const Options& options);
  ~LinkExecutor() override;

  [[nodiscard]] Result<cairn::TransferId> submit(Transfer&& transfer) override;
  void cancel(cairn::TransferId transfer) override { ledger_.cancel(transfer); }
  void check_deadlines() override { ledger_.check_deadlines(); }
  [[nodiscard]] bool can_move(const CopyPlan&) const override { return true; }
  [[nodiscard]] ExecutorLoad load() const override { return ledger_.load(); }
  [[nodiscard]] std::string describe() const override { return "simulated"; }

  // Ends what has arrived and runs the callbacks. Returns whether there was anything.
  bool run();
  // When a stalled transfer arrives.
  [[nodiscard]] std::optional<TimePoint> next_stalled() const;
  // When the next transfer of this worker arrives; std::nullopt if none is in flight.
  [[nodiscard]] std::optional<TimePoint> next_arrival() const;

 private:
  // One transfer on a link.
  struct Copy {
    std::shared_ptr<ActiveTransfer> transfer;
    CacheLevel tier = CacheLevel::kG2;  // whose link it takes
    bool reads_tier = false;            // it leaves the tier
  };

  void on_arrived(TransferId transfer) override;
  [[nodiscard]] Copy describe_copy(std::shared_ptr<ActiveTransfer> transfer) const;
  [[nodiscard]] LinkId link_of(const Copy& copy) const;
  // The fault of the tier at this moment; null if there is none.
  [[nodiscard]] const TierFault* fault_of(CacheLevel tier) const;
  void end(const Copy& copy);

  const Options options_;
  TransferLedger ledger_;
  std::map<TransferId, Copy> in_flight_;
  std::vector<Copy> arrived_;
  std::multimap<TimePoint, Copy> stalled_;  // by the end of the fault
};

}  // namespace cairn::sim
