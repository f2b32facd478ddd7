// RequestCounts: what the scheduler's side remembers of one request to count its tokens once (manager/token_counts.h).
//
// The scheduler says what a match found, what was preempted and what is computed again. count() is called when the request
// runs or its load has ended, and returns what that adds to the counts.
//
// Thread safety: none; the scheduler's thread alone.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "cairn/manager/token_counts.h"

namespace cairn {

class RequestCounts {
 public:
  // What a match found, in tokens.
  struct Lookup {
    std::size_t asked = 0;  // tokens of the request
    std::size_t host = 0;   // found beyond the engine's own, by tier
    std::size_t disk = 0;
    std::size_t too_slow = 0;  // of the found ones
  };
  // A load that has ended, in tokens.
  struct Load {
    std::size_t wanted = 0;
    std::size_t from_host = 0;
    std::size_t from_disk = 0;
  };

  // Whether count() has something to count.
  [[nodiscard]] bool is_open() const { return is_open_; }
  [[nodiscard]] const TokenCounts& counts() const { return counts_; }
  // The number that TokenCounter gave the request.
  [[nodiscard]] std::uint64_t number() const { return number_; }

  void matched(const Lookup& lookup, bool has_run) {
    lookup_ = lookup;
    is_first_ = is_first_ && !has_run;
    is_matched_ = is_open_ = true;
  }
  // It loses its device blocks, with so many tokens computed.
  void preempted(std::size_t computed, bool has_run) {
    is_first_ = is_first_ && !has_run;
    is_matched_ = false;
    if (!is_first_) {  // before, the tokens are in the engine's own cache
      lost_ = std::max(lost_, computed);
    }
    is_open_ = lost_ + again_ > 0;
  }
  // The engine computes so many tokens again, in the same blocks.
  void computes_again(std::size_t tokens) {
    again_ += tokens;
    is_open_ = is_open_ || tokens > 0;
  }

  // The request runs, or its load has ended: `device` tokens are from the engine's own cache.
  [[nodiscard]] TokenCounts count(std::size_t device, const Load& load) {
    TokenCounts more;
    const std::size_t loaded = load.from_host + load.from_disk;
    if (is_first_ && is_matched_) {
      // The engine's last word on its own cache counts, and may differ from what it matched with.
      more.requests = 1;
      more.asked = lookup_.asked;
      more.device = std::min<std::uint64_t>(device, more.asked);
      const std::uint64_t rest = more.asked - more.device;
      more.loaded_host = std::min<std::uint64_t>(load.from_host, rest);
      more.loaded_disk = std::min<std::uint64_t>(load.from_disk, rest - more.loaded_host);
      more.computed = rest - more.loaded();
      const std::uint64_t found = std::clamp<std::uint64_t>(lookup_.host + lookup_.disk, more.loaded(), rest);
      more.found_disk = std::min<std::uint64_t>(lookup_.disk, found);
      more.found_host = found - more.found_disk;
      std::uint64_t left = found - more.loaded();
      more.failed = std::min<std::uint64_t>(load.wanted - std::min(load.wanted, loaded), left);
      left -= more.failed;
      more.too_slow = std::min<std::uint64_t>(lookup_.too_slow, left);
      more.skipped = left - more.too_slow;
    } else {
      more.kept = std::min(device, lost_);
      more.reloaded = std::min(loaded, lost_ - more.kept);
      more.loaded_late = loaded - more.reloaded;
    }
    more.lost = lost_ + again_;
    more.recomputed = more.lost - more.kept - more.reloaded;
    is_first_ = is_first_ && !is_matched_;
    is_open_ = is_matched_ = false;
    lost_ = again_ = 0;
    return more;
  }
  void add(const TokenCounts& more, std::uint64_t number) {
    counts_ += more;
    number_ = number;
  }

 private:
  bool is_open_ = false;
  bool is_matched_ = false;  // since the request was added, preempted or counted
  bool is_first_ = true;     // it has not run
  Lookup lookup_ = {};       // the latest
  std::size_t lost_ = 0;     // tokens that were on the device before a preemption
  std::size_t again_ = 0;    // tokens that the engine took back
  TokenCounts counts_ = {};
  std::uint64_t number_ = 0;
};

}  // namespace cairn
