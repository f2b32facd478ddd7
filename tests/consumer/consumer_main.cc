// A user's program, built against the installed package: a manager that finds a block again, and a connector.
#include <cairn/cairn.h>

#include <cstdio>
#include <utility>
#include <vector>

namespace {

constexpr const char* kConfig = R"(
block_size = 4
[model]
layers = 2
heads = 1
head_size = 8
[device]
memory = "system"
blocks = 8
[host]
blocks = 8
pinning = "off"
)";

// Registers a block in a manager, and returns the number of blocks that a lookup finds.
cairn::Result<std::size_t> use_manager(const cairn::ManagerConfig& config) {
  CAIRN_TRY_ASSIGN(const cairn::KvBlockManager manager, cairn::KvBlockManager::make(config));
  const std::vector<cairn::Token> prompt = {1, 2, 3, 4, 5};
  CAIRN_TRY_ASSIGN(const cairn::TokenBlockSequence request,
                   cairn::TokenBlockSequence::create(prompt, manager.block_size(), manager.hasher()));
  CAIRN_TRY_ASSIGN(cairn::MutableBlocks fresh, manager.device()->allocate(1));
  auto filled = std::move(fresh).complete({.keys = request.keys()});
  if (!filled) {
    return cairn::Unexpected(std::move(filled.error().error));
  }
  const cairn::ImmutableBlocks stored = std::move(*filled).register_blocks().value();
  return manager.locate(request.keys()).levels.size();
}

// The scheduler side of a connector, for an engine with 8 device blocks.
cairn::Status use_connector(cairn::ManagerConfig config) {
  config.device.memory = cairn::DeviceMemory::kGpu;
  CAIRN_TRY_ASSIGN(const auto scheduler, cairn::SchedulerConnector::make({.manager = std::move(config)}));
  if (scheduler->has_work()) {
    return cairn::fail(cairn::ErrorCode::kFailedPrecondition, "a scheduler without requests has work");
  }
  return {};
}

cairn::Result<std::size_t> run() {
  CAIRN_TRY_ASSIGN(const cairn::ManagerConfig config, cairn::ManagerConfig::from_toml(kConfig, "consumer.toml"));
  CAIRN_TRY(use_connector(config));
  return use_manager(config);
}

}  // namespace

int main() {
  const cairn::Result<std::size_t> cached = run();
  if (!cached) {
    std::fprintf(stderr, "%s\n", cached.error().to_string().c_str());
    return 1;
  }
  std::printf("%zu block cached\n", *cached);
  return 0;
}
