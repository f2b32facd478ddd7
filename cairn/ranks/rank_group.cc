#include "cairn/ranks/rank_group.h"

#include <utility>
#include <variant>

#include "cairn/base/str_cat.h"
#include "cairn/ranks/rank_executor.h"
#include "cairn/ranks/rank_leader.h"

namespace cairn {

class RankGroup::Impl final : public RankLeader {
 public:
  using RankLeader::RankLeader;
};

namespace {

class Port final : public RankGroup::LocalPort {
 public:
  Port(std::shared_ptr<RankLeader> leader, RankLink link) : leader_(std::move(leader)), link_(link) {}
  ~Port() override { leader_->leave(link_); }
  Port(const Port&) = delete;
  Port& operator=(const Port&) = delete;
  void send(std::uint32_t generation, const RankMessage& message) override {
    leader_->send(link_, generation, message);
  }

 private:
  const std::shared_ptr<RankLeader> leader_;
  const RankLink link_;
};

}  // namespace

Result<std::unique_ptr<RankGroup>> RankGroup::make(Options options) {
  if (options.ranks == 0) {
    return fail(ErrorCode::kInvalidArgument, "a group of 0 ranks; there is at least one");
  }
  if (options.transfers == 0) {
    return fail(ErrorCode::kInvalidArgument, "a group with room for 0 transfers; give at least one");
  }
  if (options.address && std::holds_alternative<RankAddress::Tcp>(options.address->place) && options.secret.empty()) {
    return fail(ErrorCode::kInvalidArgument, str_cat("a leader at ", options.address->to_string(),
                                                     " without a secret; anybody could be a rank: give one"));
  }
  Result<std::unique_ptr<RankServer>> server = RankServer::make(*options.clock, options.address);
  if (!server) {
    return Unexpected(std::move(server).error());
  }
  if (!options.id) {
    options.id = make_leader_id();
  }
  auto impl = std::make_shared<Impl>(std::move(options), *std::move(server));
  impl->start();
  return std::unique_ptr<RankGroup>(new RankGroup(std::move(impl)));
}

RankGroup::RankGroup(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
RankGroup::~RankGroup() { impl_->stop(); }

void RankGroup::open(const ManagerConfig& config) { impl_->open(config); }
std::unique_ptr<TransferExecutor> RankGroup::make_executor() { return std::make_unique<RankExecutor>(impl_); }
void RankGroup::tell(const RankNotice& notice) { impl_->tell(notice); }

Result<std::unique_ptr<RankGroup::LocalPort>> RankGroup::join(std::uint32_t rank, Deliver deliver) {
  Result<RankLink> link = impl_->join(rank, std::move(deliver));
  if (!link) {
    return Unexpected(std::move(link).error());
  }
  return std::unique_ptr<LocalPort>(std::make_unique<Port>(impl_, *link));
}

LeaderId RankGroup::id() const { return *impl_->options().id; }
std::optional<RankAddress> RankGroup::address() const { return impl_->address(); }
std::vector<RankStatus> RankGroup::status() const { return impl_->status(); }
Status RankGroup::wait_for_ranks(Duration longest) const { return impl_->wait_for_ranks(longest); }

}  // namespace cairn
