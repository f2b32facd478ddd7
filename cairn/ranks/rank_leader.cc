#include "cairn/ranks/rank_leader.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "cairn/base/check.h"
#include "cairn/base/deadline.h"
#include "cairn/base/str_cat.h"

namespace cairn {

namespace {

// On the machine's clock, whatever the group's: a thread waits.
std::chrono::steady_clock::time_point real_time_in(Duration longest) {
  return std::chrono::steady_clock::time_point(deadline_after(steady_clock().now(), longest));
}

}  // namespace

RankLeader::RankLeader(RankGroup::Options options, std::unique_ptr<RankServer> server)
    : options_(std::move(options)),
      members_({.leader = *options_.id,
                .ranks = options_.ranks,
                .secret = options_.secret,
                .heartbeat = limited(options_.heartbeat),
                .silence = limited(options_.silence)}),
      server_(std::move(server)) {}

RankLeader::~RankLeader() { server_->stop(); }

void RankLeader::start() { server_->start(*this); }

void RankLeader::stop() {
  {
    const MutexLock lock(mutex_);
    is_left_ = true;
    if (has_executor_) {
      return;
    }
    is_stopped_ = true;
    changed_.notify_all();
  }
  server_->stop();
}

void RankLeader::open(const ManagerConfig& config) {
  {
    const MutexLock lock(mutex_);
    shutdown_ = config.shutdown;
    members_.open(config.to_toml(), options_.clock->now());
  }
  server_->wake();
}

void RankLeader::tell(const RankNotice& notice) {
  {
    const MutexLock lock(mutex_);
    asked_.emplace_back(notice);
  }
  server_->wake();
}

Result<RankLink> RankLeader::join(std::uint32_t rank, RankGroup::Deliver deliver) {
  RankLink link{};
  {
    const MutexLock lock(mutex_);
    link = RankLink{next_link_++};
    if (Status joined = members_.join(link, rank, options_.clock->now()); !joined) {
      return Unexpected(joined.error());
    }
    Local local{.deliver = std::make_shared<const RankGroup::Deliver>(std::move(deliver))};
    local.leaving.push_back({link});
    local_.emplace(link, std::move(local));
  }
  server_->wake();
  return link;
}

void RankLeader::send(RankLink link, std::uint32_t generation, const RankMessage& message) {
  {
    const MutexLock lock(mutex_);
    heard_.push_back({link, generation, message});
  }
  server_->wake();
}

void RankLeader::leave(RankLink link) {
  {
    const MutexLock lock(mutex_);
    Local& local = local_.at(link);
    local.deliver.reset();
    heard_.splice(heard_.end(), local.leaving);
    if (server_->is_own_thread()) {
      take_heard();
      server_->wake();
      return;
    }
  }
  server_->wake();
  const MutexLock lock(mutex_);
  // What follows from it takes memory: the thread's business. Its place is free for the next when this returns.
  while (delivering_ == link || (!is_stopped_ && local_.contains(link))) {
    changed_.wait(mutex_);
  }
}

std::vector<RankStatus> RankLeader::status() const {
  const MutexLock lock(mutex_);
  std::vector<RankStatus> all;
  all.reserve(options_.ranks);
  for (const RankPresence& presence : members_.presence()) {
    const auto rank = static_cast<std::uint32_t>(all.size());
    all.push_back({.is_there = presence.is_there,
                   .generation = presence.generation,
                   .process = members_.peer_of(rank).process,
                   .block_bytes = members_.block_bytes(rank),
                   .copies = copies_.in_hand(rank),
                   .reason = presence.reason});
  }
  return all;
}

Status RankLeader::wait_for_ranks(Duration longest) const {
  const auto until = real_time_in(longest);
  const MutexLock lock(mutex_);
  while (!members_.all_ready()) {
    if (changed_.wait_until(mutex_, until) == std::cv_status::timeout && !members_.all_ready()) {
      std::string missing;
      std::uint32_t rank = 0;
      for (const RankPresence& presence : members_.presence()) {
        if (!presence.is_there) {
          missing += str_cat(missing.empty() ? "" : "; ", "rank ", rank, ": ", presence.reason);
        }
        ++rank;
      }
      return fail(ErrorCode::kExpired, str_cat("not all ", options_.ranks, " ranks are ready: ", missing));
    }
  }
  return {};
}

// --- the executor's ---

void RankLeader::take_executor() {
  const MutexLock lock(mutex_);
  CAIRN_CHECK(!has_executor_, "a group of ranks has one executor at a time");
  has_executor_ = true;
}

// Accepted and put down under one lock: the ledger's order is that in which ranks are asked, notices among them.
Result<TransferId> RankLeader::submit(TransferLedger& ledger, Transfer&& transfer) {
  Result<TransferId> id = fail(ErrorCode::kInvalidArgument, "");
  {
    const MutexLock lock(mutex_);
    // First: what the ledger accepts has to be in the queue.
    auto& asked = std::get<AskedCopy>(asked_.emplace_back(AskedCopy{}));
    try {
      id = ledger.accept(std::move(transfer));
    } catch (...) {
      asked_.pop_back();
      throw;
    }
    asked.transfer = id ? ledger.try_take() : nullptr;
    if (asked.transfer == nullptr) {
      asked_.pop_back();
    }
    if (!id) {
      return id;
    }
  }
  server_->wake();
  return id;
}

void RankLeader::cancel(TransferLedger& ledger, TransferId transfer) {
  {
    const MutexLock lock(mutex_);
    ledger.cancel(transfer);
    asked_.emplace_back(AskedCancel{transfer});
  }
  server_->wake();
}

bool RankLeader::has_no_copies() const {
  const auto is_copy = [](const Asked& asked) { return std::holds_alternative<AskedCopy>(asked); };
  return copies_.empty() && std::none_of(asked_.begin(), asked_.end(), is_copy);
}

// To give up on a rank is safe although it may still copy: the bytes are its own, no process frees them here, and it is
// thrown out, so that it comes back only when it has waited for what it does. Until then nobody asks it for anything, and
// no block that it touches is read.
void RankLeader::end_executor() {
  const auto wait = [this](Duration longest) {
    const auto until = real_time_in(longest);
    const MutexLock lock(mutex_);
    while (!has_no_copies() && changed_.wait_until(mutex_, until) != std::cv_status::timeout) {
    }
    return has_no_copies();
  };
  Duration shutdown{};
  {
    const MutexLock lock(mutex_);
    shutdown = shutdown_;
    end_ = End::kCancelAll;
  }
  server_->wake();
  if (!wait(shutdown)) {
    {
      const MutexLock lock(mutex_);
      end_ = End::kGiveUp;
    }
    server_->wake();
    CAIRN_CHECK(wait(Duration::max()), "what was given up on is over");
  }
  const MutexLock lock(mutex_);
  has_executor_ = false;
}

}  // namespace cairn
