#include "cairn/leader/leader.h"

#include <utility>
#include <variant>

#include "cairn/base/str_cat.h"
#include "cairn/leader/leader_executor.h"
#include "cairn/leader/leader_thread.h"

namespace cairn {

namespace {

class LocalPort final : public LocalLeader::Port {
 public:
  LocalPort(std::shared_ptr<LeaderThread> thread, ConnectionId connection)
      : thread_(std::move(thread)), connection_(connection) {}
  ~LocalPort() override { thread_->leave(connection_); }
  void send(std::uint32_t generation, const RankMessage& message) override {
    thread_->send(connection_, generation, message);
  }

 private:
  const std::shared_ptr<LeaderThread> thread_;
  const ConnectionId connection_;
};

}  // namespace

Result<std::unique_ptr<Leader>> Leader::make(Options options) {
  CAIRN_TRY(options.ranks.validate());
  if (options.transfers == 0) {
    return fail(ErrorCode::kInvalidArgument, "a leader with room for 0 transfers; give at least one");
  }
  if (options.address && std::holds_alternative<RankAddress::Tcp>(options.address->place) && options.secret.empty()) {
    return fail(ErrorCode::kInvalidArgument, str_cat("a leader at ", options.address->to_string(),
                                                     " without a secret: any process could be a rank; give one"));
  }
  CAIRN_TRY_ASSIGN(std::unique_ptr<LeaderServer> server, LeaderServer::make(*options.clock, options.address));
  if (!options.id) {
    options.id = make_leader_id();
  }
  auto thread = std::make_shared<LeaderThread>(std::move(options), std::move(server));
  thread->start();
  return std::unique_ptr<Leader>(new Leader(std::move(thread)));
}

Leader::~Leader() { thread_->stop(); }

void Leader::open(const ManagerConfig& config, const TierSizes& sizes) { thread_->open(config, sizes); }
std::unique_ptr<TransferExecutor> Leader::make_executor() { return std::make_unique<LeaderExecutor>(thread_); }
void Leader::broadcast(const RankBroadcast& message) { thread_->broadcast(message); }
void Leader::confirm(StepMark mark, std::span<const BlockId> blocks) { thread_->confirm(mark, blocks); }
void Leader::withdraw(StepMark mark, std::span<const BlockId> blocks) { thread_->withdraw(mark, blocks); }

Result<std::unique_ptr<LocalLeader::Port>> Leader::join(const RankClaim& claim, Deliver deliver) {
  CAIRN_TRY_ASSIGN(const ConnectionId connection, thread_->join(claim, std::move(deliver)));
  return std::unique_ptr<Port>(std::make_unique<LocalPort>(thread_, connection));
}

RankGrid Leader::ranks() const { return thread_->options().ranks; }
LeaderId Leader::id() const { return *thread_->options().id; }
std::optional<RankAddress> Leader::address() const { return thread_->address(); }
std::vector<RankStatus> Leader::status() const { return thread_->status(); }
Status Leader::wait_for_ranks(Duration longest) const { return thread_->wait_for_ranks(longest); }

}  // namespace cairn
