#include "cairn/manager/manager_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <functional>
#include <limits>
#include <string>

#include "cairn/manager/config_testing.h"
#include "cairn/memory/system_region.h"

namespace cairn {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

std::string problem(const std::function<void(ManagerConfig&)>& change) {
  ManagerConfig config = usable_config();
  change(config);
  const Status status = config.validate();
  return status ? "none" : status.error().message;
}

BlockLayoutPtr layout_of(const KvShape& shape, std::uint32_t blocks) {
  const BlockLayout::Options options{.shape = shape, .blocks = blocks};
  const Result<RegionPtr> region = system_region({.size = BlockLayout::region_sizes(options)->front()});
  EXPECT_TRUE(region) << region.error().message;
  return BlockLayout::make(options, {*region}).value();
}

TEST(ManagerConfigTest, ASecretIsGivenOnceAndToASchemeThatHasOne) {
  const std::string digits(64, '7');
  EXPECT_EQ(problem([](ManagerConfig& c) { c.http = {.listen = "127.0.0.1:9470", .token = "t", .token_file = "/t"}; }),
            "http.token and http.token_file are both given; give one of them");
  EXPECT_EQ(problem([&](ManagerConfig& c) { c.model.secret = digits; }), "none");
  EXPECT_THAT(problem([&](ManagerConfig& c) {
                c.model.secret = digits;
                c.model.secret_file = "/secret";
              }),
              HasSubstr("both given"));
  for (const KeyScheme scheme : {KeyScheme::kDynamo, KeyScheme::kRouter}) {
    EXPECT_THAT(problem([&](ManagerConfig& c) {
                  c.model.secret_file = "/secret";
                  c.model.scheme = scheme;
                }),
                HasSubstr("which has no secret"));
  }
  const std::string bad = problem([&](ManagerConfig& c) { c.model.secret = digits.substr(1) + "x"; });
  EXPECT_THAT(bad, HasSubstr("model.secret"));
  EXPECT_THAT(bad, ::testing::Not(HasSubstr("77777777")));
}

TEST(ManagerConfigTest, ADataParallelRankIsGivenOrNot) {
  ManagerConfig config;
  EXPECT_EQ(config.dp_rank, std::nullopt);
  const NamespaceId alone = config.space().id();
  ASSERT_TRUE(config.set("dp_rank", "3"));
  EXPECT_EQ(config.dp_rank, 3U);
  EXPECT_EQ(config.space().id(), alone) << "all data parallel ranks compute the same KV";
  ASSERT_TRUE(config.set("dp_rank", "none"));
  EXPECT_EQ(config.dp_rank, std::nullopt);
  EXPECT_FALSE(config.set("dp_rank", "-1"));
  EXPECT_FALSE(config.set("dp_rank", "first"));
}

TEST(ManagerConfigTest, RequestsHaveDefaultsAndTenantsHaveQuotas) {
  ManagerConfig config;
  ASSERT_TRUE(config.set("requests.priority", "7"));
  ASSERT_TRUE(config.set("requests.time_to_live", "5m"));
  EXPECT_EQ(config.requests.time_to_live, std::chrono::minutes(5));
  ASSERT_TRUE(config.set("requests.time_to_live", "none"));
  EXPECT_EQ(config.requests.time_to_live, std::nullopt);
  ASSERT_TRUE(config.set("requests.tenants", "batch:100:500, trial:0:0"));
  ASSERT_EQ(config.requests.tenants.size(), 2);
  EXPECT_EQ(config.requests.tenants[0].name, "batch");
  EXPECT_EQ(config.requests.tenants[0].reserved, 100);
  EXPECT_EQ(config.requests.tenants[0].limit, 500);
  EXPECT_EQ(config.requests.tenants[1].limit, std::nullopt);
  EXPECT_EQ(*config.requests.tenant_id(""), kDefaultTenant);
  EXPECT_EQ(index_of(*config.requests.tenant_id("trial")), 2);
  EXPECT_EQ(config.requests.tenant_id("other").error().code, ErrorCode::kNotFound);
  for (const char* const bad : {"batch", "batch:1", ":1:2", "batch:x:2", "batch:1:2, ,"}) {
    EXPECT_FALSE(config.set("requests.tenants", bad)) << bad;
  }
  EXPECT_EQ(config.requests.priority, 7);
  EXPECT_FALSE(config.set("requests.priority", "101"));
  EXPECT_THAT(problem([](ManagerConfig& c) { c.requests.time_to_live = std::chrono::seconds(1); }),
              HasSubstr("requests.retention"));
}

TEST(ManagerConfigTest, SetsByTheNameOfAKey) {
  ManagerConfig config;
  EXPECT_TRUE(config.set("host.size", "8GiB"));
  EXPECT_EQ(config.host.size, std::uint64_t{8} << 30U);
  EXPECT_TRUE(config.set("device.layout", "layers-kv-hnd"));
  EXPECT_EQ(config.device.layout, Arrangement::kLayersKvHnd);
  EXPECT_TRUE(config.set("model.scheme", "vllm"));
  EXPECT_EQ(config.model.scheme, KeyScheme::kVllm);
  EXPECT_EQ(config.set("host.sise", "1").error().message, "unknown key host.sise; did you mean host.size?");
  EXPECT_THAT(config.set("device.policy", "mru").error().message,
              HasSubstr("device.policy is 'mru'; expected fifo, lru"));
}

TEST(ManagerConfigTest, TheEnvironmentOverridesExistingValues) {
  ManagerConfig config;
  config.block_size = 64;
  config.host.blocks = 5;
  ASSERT_TRUE(config.apply({{"CAIRN_BLOCK_SIZE", "32"},
                            {"CAIRN_OFFLOAD_HOST_MODE", "off"},
                            {"CAIRN_OFFLOAD_HOST_LOW_WATER", "10%"},
                            {"CAIRN_JOBS", "2"},
                            {"PATH", "/bin"}}));
  EXPECT_EQ(config.block_size, 32U);
  EXPECT_EQ(config.host.blocks, 5U);
  EXPECT_EQ(config.offload_to_host.mode, OffloadMode::kOff);
  EXPECT_EQ(config.offload_to_host.low_water, 0.1);
}

TEST(ManagerConfigTest, AVariableThatIsWrongIsAnErrorAndChangesNothing) {
  ManagerConfig config;
  EXPECT_EQ(config.apply({{"CAIRN_BLOCK_SIZE", "32"}, {"CAIRN_HOST_SISE", "1"}}).error().message,
            "unknown environment variable CAIRN_HOST_SISE; did you mean CAIRN_HOST_SIZE?");
  EXPECT_THAT(config.apply({{"CAIRN_BLOCK_SIZE", "32"}, {"CAIRN_HOST_SIZE", "lots"}}).error().message,
              StartsWith("environment variable CAIRN_HOST_SIZE: host.size is 'lots'; expected a size such as 64GiB"));
  EXPECT_THAT(
      config.apply({{"CAIRN_HOST_SIZE", "lots"}, {"CAIRN_BLOCK_SIZE", "0"}}).error().message,
      AllOf(StartsWith("2 mistakes in the configuration:\n"), HasSubstr("lots"), HasSubstr("block_size is '0'")));
  EXPECT_EQ(config.block_size, ManagerConfig().block_size);
}

TEST(ManagerConfigTest, ReadsTheEnvironmentOfTheProcess) {
  ASSERT_EQ(setenv("CAIRN_BLOCK_SIZE", "a=b", 1), 0);
  EXPECT_THAT(ManagerConfig::environment_of_process(), ::testing::Contains(::testing::Pair("CAIRN_BLOCK_SIZE", "a=b")));
  unsetenv("CAIRN_BLOCK_SIZE");
}

TEST(ManagerConfigTest, TiersInAnyCombinationAreFine) {
  EXPECT_EQ(problem([](ManagerConfig&) {}), "none");
  EXPECT_EQ(problem([](ManagerConfig& c) { c.device.size = 1 << 20; }), "none");
  EXPECT_EQ(problem([](ManagerConfig& c) {
              c.host = {};
              c.disk.blocks = 4;
              c.disk.path = "x";
            }),
            "none");
  EXPECT_EQ(problem([](ManagerConfig& c) { c.offload_to_disk.mode = OffloadMode::kOnRegistration; }), "none")
      << "there is no disk to copy to";
}

TEST(ManagerConfigTest, SaysWhichKeysContradictEachOther) {
  EXPECT_EQ(problem([](ManagerConfig& c) { c.host = {}; }),
            "there is no tier; give device, host or disk a size or blocks");
  EXPECT_THAT(problem([](ManagerConfig& c) { c.host.size = 1 << 20; }), HasSubstr("host.blocks and host.size"));
  EXPECT_THAT(problem([](ManagerConfig& c) { c.device.size = 16383; }),
              HasSubstr("device.size is 16383, less than one block of 16384 bytes"));
  EXPECT_EQ(problem([](ManagerConfig& c) { c.device.size = 16384; }), "none");
  EXPECT_THAT(
      problem([](ManagerConfig& c) {
        c.disk.path = "x";
        c.disk.size = 2 << 20;
      }),
      HasSubstr("disk.size is 2MiB, less than one block of 16384 bytes and the file's header of 2097152 bytes"));
  EXPECT_THAT(problem([](ManagerConfig& c) { c.device.size = std::numeric_limits<std::uint64_t>::max(); }),
              HasSubstr("more than 4294967294 blocks"));
  EXPECT_THAT(problem([](ManagerConfig& c) { c.host.max_size = 16384; }),
              HasSubstr("host.max_size is 16KiB, less than the 128KiB of host.blocks"));
  EXPECT_EQ(problem([](ManagerConfig& c) { c.host.max_size = 8 * 16384; }), "none");
  EXPECT_THAT(problem([](ManagerConfig& c) {
                c.host = {};
                c.host.max_size = 1 << 20;
                c.device.blocks = 1;
              }),
              HasSubstr("host.max_size is given, but neither"));
  EXPECT_THAT(problem([](ManagerConfig& c) { c.disk.blocks = 1; }), HasSubstr("disk.path is empty"));
  EXPECT_THAT(problem([](ManagerConfig& c) { c.disk.path = "x"; }), HasSubstr("disk.path is given, but neither"));
  EXPECT_THAT(problem([](ManagerConfig& c) { c.health.first_wait = std::chrono::minutes(2); }),
              HasSubstr("health.longest_wait is 1m, less than health.first_wait with 2m"));
}

TEST(ManagerConfigTest, ListsAllMistakesAtOnce) {
  EXPECT_EQ(problem([](ManagerConfig& c) {
              c.model.layers = 0;
              c.model.heads = 0;
              c.disk.blocks = 3;
              c.disk.size = 900'000'000'000'000'000;
            }),
            "4 mistakes in the configuration:\n"
            "  model.layers is 0; give the model's number, from which the size of a block is computed\n"
            "  model.heads is 0; give the model's number, from which the size of a block is computed\n"
            "  disk.blocks and disk.size are both given; give one of them\n"
            "  disk.path is empty; give the file of the disk tier");
  EXPECT_THAT(problem([](ManagerConfig& c) { c.device.size = 900'000'000'000'000'000; }),
              StartsWith("device.size is 900PB, more than"))
      << "as the user wrote it";
}

TEST(ManagerConfigTest, ReadsAllSourcesAndListsTheMistakesOfAll) {
  const auto read = [](ConfigSources sources) {
    const Result<ManagerConfig> config = read_config(sources);
    return config ? "none" : config.error().message;
  };
  const std::string model = "[model]\nlayers = 2\nheads = 2\nhead_size = 64\n";
  EXPECT_EQ(read({.toml = model + "[host]\nsize = \"1GiB\"\n"}), "none");
  EXPECT_EQ(read({.toml = model}), "none") << "validate() finds contradictions, if there is no other mistake";
  const std::string all = read({.toml = model + "[host]\nsize = \"1 gig\"\n[disk]\nblocks = 1\n",
                                .environment = {{"CAIRN_BLOCK_SISE", "1"}},
                                .settings = {"device.blocks=-1", "x"}});
  EXPECT_THAT(all,
              AllOf(StartsWith("5 mistakes in the configuration:\n"), HasSubstr("\n  config:6: host.size is '1 gig'"),
                    HasSubstr("\n  unknown environment variable CAIRN_BLOCK_SISE; did you mean CAIRN_BLOCK_SIZE?"),
                    HasSubstr("\n  --set device.blocks: device.blocks is '-1'"), HasSubstr("\n  --set x has no value"),
                    HasSubstr("\n  disk.path is empty")));
  EXPECT_THAT(read({.toml = "[host]\nmax_size = \"1GiB\"\nsize = \"lots\"\n" + model}), Not(HasSubstr("host.max_size")))
      << "the intended host.size is unknown";
  EXPECT_THAT(read({.toml = "[host\n"}), StartsWith("config:1: ")) << "the rest cannot be read";
  EXPECT_EQ(read_config({.file = "/nowhere/cairn.toml"}).error().code, ErrorCode::kNotFound);
}

TEST(ManagerConfigTest, TiersNeedTheModelsNumbers) {
  EXPECT_THAT(problem([](ManagerConfig& c) { c.model.layers = 0; }), HasSubstr("model.layers is 0"));
  EXPECT_THAT(problem([](ManagerConfig& c) { c.model.heads = 0; }), HasSubstr("model.heads is 0"));
  EXPECT_THAT(problem([](ManagerConfig& c) { c.model.head_size = 0; }), HasSubstr("model.head_size is 0"));
  EXPECT_THAT(problem([](ManagerConfig& c) { c.model.name.clear(); }), HasSubstr("model.name is empty"));
  EXPECT_THAT(problem([](ManagerConfig& c) {
                c.model.head_size = 3;
                c.model.element_type = "int4";
              }),
              HasSubstr("[model] with block_size 16: a head of 3 elements of 4 bits"));
  EXPECT_THAT(problem([](ManagerConfig& c) { c.block_size = std::numeric_limits<std::uint32_t>::max(); }),
              HasSubstr("[model] with block_size 4294967295: "));
  EXPECT_THAT(problem([](ManagerConfig& c) {
                c.host.blocks = std::numeric_limits<std::uint32_t>::max() - 1;
                c.model.layers = 1 << 16;
                c.model.head_size = 1 << 12;
              }),
              HasSubstr("more than can be addressed"));
}

// Filled in by hand, without the keys.
TEST(ManagerConfigTest, HoldsEachValueToItsRange) {
  EXPECT_THAT(problem([](ManagerConfig& c) { c.block_size = 0; }), HasSubstr("block_size is '0'"));
  EXPECT_THAT(problem([](ManagerConfig& c) { c.model.kv = 3; }), HasSubstr("model.kv is '3'"));
  EXPECT_THAT(problem([](ManagerConfig& c) { c.model.element_type = "f64"; }),
              HasSubstr("model.element_type is 'f64'"));
  EXPECT_THAT(problem([](ManagerConfig& c) { c.model.name = "a\nb"; }), HasSubstr("model.name is"));
  EXPECT_THAT(problem([](ManagerConfig& c) { c.device.gpu = -1; }), HasSubstr("device.gpu is '-1'"));
  EXPECT_THAT(problem([](ManagerConfig& c) { c.host.numa_node = -1; }), HasSubstr("host.numa_node is '-1'"));
  EXPECT_THAT(problem([](ManagerConfig& c) { c.offload_to_host.low_water = 0.6; }),
              HasSubstr("offload.host.low_water is '0.6'; expected a share from 0 to 0.5"));
  EXPECT_THAT(problem([](ManagerConfig& c) { c.offload_to_disk.low_water = std::nan(""); }),
              HasSubstr("offload.disk.low_water is"));
  EXPECT_THAT(problem([](ManagerConfig& c) { c.offload_to_host.batch = 0; }), HasSubstr("offload.host.batch is '0'"));
  EXPECT_THAT(problem([](ManagerConfig& c) { c.offload_to_disk.in_flight = 0; }),
              HasSubstr("offload.disk.in_flight is '0'"));
  EXPECT_THAT(problem([](ManagerConfig& c) { c.offload_to_disk.deadline = Duration::zero(); }),
              HasSubstr("offload.disk.deadline is '0ns'"));
  EXPECT_THAT(problem([](ManagerConfig& c) { c.onboard.deadline = Duration(-1); }), HasSubstr("onboard.deadline is"));
  EXPECT_THAT(problem([](ManagerConfig& c) { c.onboard.loads = 0; }), HasSubstr("onboard.loads is '0'"));
  EXPECT_THAT(problem([](ManagerConfig& c) { c.disk.in_flight = 0; }), HasSubstr("disk.in_flight is '0'"));
  EXPECT_THAT(problem([](ManagerConfig& c) { c.health.failures = 0; }), HasSubstr("health.failures is '0'"));
  EXPECT_THAT(problem([](ManagerConfig& c) { c.shutdown = Duration::zero(); }), HasSubstr("shutdown is '0ns'"));
  EXPECT_THAT(problem([](ManagerConfig& c) { c.host.policy = static_cast<PolicyKind>(99); }),
              HasSubstr("host.policy is"));
}

TEST(ManagerConfigTest, AnEnginesMemoryAgreesWithTheRest) {
  const BlockLayoutPtr layout = layout_of(usable_config().shape(), 4);
  EXPECT_EQ(problem([&](ManagerConfig& c) { c.device.engine_layout = layout; }), "none");
  EXPECT_EQ(problem([&](ManagerConfig& c) {
              c.device.engine_layout = layout;
              c.device.managed_by_engine = true;
              c.host = {};
            }),
            "none")
      << "the engine's memory is a tier";
  EXPECT_THAT(problem([](ManagerConfig& c) { c.device.managed_by_engine = true; }),
              HasSubstr("device.managed_by_engine is set, but there is no engine_layout"));
  EXPECT_THAT(problem([&](ManagerConfig& c) {
                c.device.engine_layout = layout;
                c.device.blocks = 5;
              }),
              HasSubstr("device.blocks is given, but the engine's memory has 4 blocks"));
  EXPECT_THAT(problem([&](ManagerConfig& c) {
                c.device.engine_layout = layout;
                c.device.size = 1 << 20;
              }),
              HasSubstr("device.size is given"));
  EXPECT_THAT(problem([&](ManagerConfig& c) {
                c.device.engine_layout = layout;
                c.model.layers = 3;
              }),
              HasSubstr("another shape than [model]"));
}

TEST(ManagerConfigTest, TheShapeIsTheModels) {
  ManagerConfig config = usable_config();
  config.model.kv = 1;
  config.model.element_type = "fp8_e4m3";
  EXPECT_EQ(config.shape(),
            (KvShape{.layers = 2, .kv = 1, .page_size = 16, .heads = 2, .head_size = 64, .element_bits = 8}));
}

TEST(ManagerConfigTest, TheNamespaceHasAllOfTheModel) {
  ManagerConfig config = usable_config();
  config.model.shard = "tp0/2";
  const Namespace space = config.space();
  EXPECT_EQ(space.model, "model");
  EXPECT_EQ(space.layout, "contiguous-nhd 2x2x2x64");
  EXPECT_EQ(space.element_type, "bf16");
  EXPECT_EQ(space.shard, "tp0/2");
  EXPECT_EQ(space.block_size, 16U);
  for (const ConfigKey& key : config_keys()) {
    ManagerConfig other = usable_config();
    const ManagerConfig before = other;
    ASSERT_TRUE(set_key(other, key, other_value(key)));
    const bool is_secret = key.name == "model.secret" || key.name == "model.secret_file";
    const bool is_part = (key.section() == "model" && !is_secret) || key.name == "block_size";
    EXPECT_EQ(other.space().id() != before.space().id(), is_part) << key.name;
  }
}

}  // namespace
}  // namespace cairn
