// ManagerConfig: the configuration of a KvBlockManager: the model's shape, the tiers, and how blocks move between them.
//
// A struct with defaults. A program sets its members, reads a TOML file, the environment or a command line, or all of them;
// later sources override earlier ones. Keys have the same names everywhere: `host.size` in errors, `size` under `[host]` in the
// file, CAIRN_HOST_SIZE in the environment. docs/configuration.md lists them.
//
// Errors: kInvalidArgument for unknown keys, values that do not parse or are out of range, and keys that contradict each
// other. The message names the key, the value and what is expected; if there are several mistakes, it lists all of them, one a
// line.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cairn/base/clock.h"
#include "cairn/base/ids.h"
#include "cairn/base/result.h"
#include "cairn/events/event_stream.h"
#include "cairn/evict/retention.h"
#include "cairn/layout/block_layout.h"
#include "cairn/memory/region.h"
#include "cairn/offload/offload_request.h"
#include "cairn/onboard/load_request.h"
#include "cairn/pool/block_pool.h"
#include "cairn/tier/tier_status.h"
#include "cairn/tokens/cache_groups.h"
#include "cairn/tokens/key_hasher.h"

namespace cairn {

// [model]: the model that the blocks belong to, and the shape of a block.
struct ModelConfig {
  std::string name = "model";  // all members except the secret are part of the namespace
  std::string tenant = {};
  std::uint64_t weights_generation = 0;
  std::string shard = {};  // "tp0/2"; empty if the blocks hold the whole model
  KeyScheme scheme = KeyScheme::kNative;
  // The secret that keys are made with, as 64 hexadecimal digits, or a file that holds them; not both. If neither is given,
  // the secret in the disk tier's file is used, or a random one. Never printed, and not part of the namespace.
  std::string secret = {};
  std::string secret_file = {};
  std::uint32_t layers = 0;
  std::uint32_t kv = 2;  // 2 for keys and values, 1 if they are stored together (MLA)
  std::uint32_t heads = 0;
  std::uint32_t head_size = 0;
  std::string element_type = "bf16";  // f32, bf16, f16, fp8_e4m3, fp8_e5m2, int8, uint8, int4, nvfp4 or fp4
  // The layer groups of a hybrid model, each with its own block table. A block of any group takes one block of a tier, which
  // has the shape above. Empty: all layers share one block table.
  std::vector<CacheGroup> groups = {};
};

// What every tier has.
struct TierConfig {
  std::uint32_t blocks = 0;  // give blocks or size; if both are 0, there is no such tier
  std::uint64_t size = 0;    // bytes
  PolicyKind policy = PolicyKind::kAdaptive;
  bool leaves_first = true;
  [[nodiscard]] bool is_there() const { return blocks != 0 || size != 0; }
};

enum class DeviceMemory : std::uint8_t {
  kGpu,
  kSystem,  // memory of this process takes the place of a GPU's, on machines without one
};

// Whether it is measured how a GPU copies best.
enum class GpuCalibration : std::uint8_t {
  kCached,  // once on a machine
  kFresh,   // now
  kOff,     // the defaults are used
};

// [device], G1
struct DeviceConfig : TierConfig {
  DeviceMemory memory = DeviceMemory::kGpu;
  int gpu = 0;
  GpuCalibration calibration = GpuCalibration::kCached;
  Arrangement layout = Arrangement::kContiguousNhd;
  Duplicates duplicates = Duplicates::kReject;
  // Describes memory that the engine owns. Set by the engine's program; there is no key for it. Replaces blocks, size and
  // layout.
  BlockLayoutPtr engine_layout = {};
  // The engine decides which block holds what, and Cairn has no pool for the device; needs engine_layout. There is no key.
  bool managed_by_engine = false;
};

enum class Pinning : std::uint8_t { kPreferred, kRequired, kOff };

// [host], G2
struct HostConfig : TierConfig {
  std::uint64_t max_size = 0;  // the largest size for resize_host(); 0 for the initial size
  Pinning pinning = Pinning::kPreferred;
  HugePages huge_pages = HugePages::kTransparent;
  std::optional<int> numa_node = {};
};

// [disk], G3
struct DiskConfig : TierConfig {
  std::string path = {};
  DiskOpening opening = DiskOpening::kReuse;
  bool direct = true;
  IoMethod io = IoMethod::kBest;
  std::uint32_t in_flight = 16;
  std::uint64_t scrub_rate = 0;  // bytes per second that are read to find damaged blocks; 0 to turn that off
};

// [remote], G4: a store that others operate.
struct RemoteConfig {
  std::string url = {};                       // redis://HOST:PORT, rediss://HOST:PORT; empty: there is no such tier
  std::uint32_t blocks = 262144;              // that are known to be in the store; others have to be found again
  PolicyKind policy = PolicyKind::kAdaptive;  // which of them are forgotten first
  std::string user = {};
  std::string password = {};  // never printed; or a file that holds it, not both
  std::string password_file = {};
  std::string ca_file = {};
  std::optional<Duration> time_to_live = {};   // of what is stored; std::nullopt: as long as the store keeps it
  Duration timeout = std::chrono::seconds(2);  // to connect, of a lookup, and between two signs of life
  std::uint32_t attempts = 3;                  // to read or write a block, within its deadline
  std::uint32_t connections = 2;               // to each server
  [[nodiscard]] bool is_there() const { return !url.empty(); }
};

// [requests]: what a request may say of its blocks, and what it says by default.
struct RequestsConfig {
  std::uint32_t priority = 50;  // of blocks that are saved for an engine's request, 0 to Retention::kMaxPriority
  // Whether blocks may have a time to live, a priority for a time, and hints; 52 bytes a block in every tier.
  bool retention = false;
  std::optional<Duration> time_to_live = {};  // needs `retention`
  // Shares of the tier that saves go to. Requests that name none of these are the default tenant's, which has no quota.
  std::vector<TenantQuota> tenants = {};
  // The sliding windows of counts (manager/token_counts.h): the last so many requests, and the last so much time.
  std::uint32_t window_requests = 1000;
  Duration window_time = std::chrono::seconds(60);
  // The tenant of that name; the default tenant if it is empty. kNotFound: it is not in `tenants`.
  [[nodiscard]] Result<TenantId> tenant_id(std::string_view name) const;
};

// [record]: a file with the calls of an engine's scheduler, for bug reports; `cairn replay --calls` reads it.
struct RecordConfig {
  std::string path = {};  // empty: none
  bool tokens = false;    // whether token ids, salts and adapters are in the file
};

// [events]: a stream of events for routers (events/event_stream.h). All ranks of an engine that is data parallel have their own: dp_rank is
// added to the port of each endpoint.
struct EventsConfig {
  std::string publish = {};  // endpoint of ZeroMQ; empty: no stream
  std::string replay = {};
  std::string topic = {};
  EventFormat format = EventFormat::kVllm;
  EventMode mode = EventMode::kDedup;
  std::string engine = {};
  std::string engine_replay = {};
  std::string library = "libzmq.so.5";
};

struct ManagerConfig {
  std::uint64_t worker_id = 0;
  // Which of several engines that serve one model side by side this is, in events and metrics. Not part of the namespace:
  // all of them compute the same KV. std::nullopt: the only one (0 in events, no label in metrics).
  std::optional<std::uint32_t> dp_rank = {};
  std::uint32_t block_size = 16;    // tokens
  std::uint32_t event_log = 65536;  // events that are kept for subscribers that lag; 0 for no events
  bool event_token_ids = false;     // whether events of stored blocks carry the token ids of the blocks
  ModelConfig model;
  DeviceConfig device;
  HostConfig host;
  DiskConfig disk;
  RemoteConfig remote;
  OffloadOptions offload_to_host;  // [offload.host]: from the device
  OffloadOptions offload_to_disk;  // [offload.disk]: from the host, or from the device if there is no host tier
  OffloadOptions offload_to_remote = {.mode = OffloadMode::kOnRegistration};  // [offload.remote]: from the host
  OnboardOptions onboard;                                                     // [onboard]
  RequestsConfig requests;                                                    // [requests]
  TierHealthOptions health;                     // [health]: when a failing tier is suspended, and tried again
  RecordConfig record;                          // [record]
  EventsConfig events;                          // [events]
  Duration shutdown = std::chrono::seconds(5);  // how long a shutdown waits for copies in flight

  // `file_name` is for messages.
  [[nodiscard]] static Result<ManagerConfig> from_toml(std::string_view text, std::string_view file_name);
  [[nodiscard]] static Result<ManagerConfig> from_file(const std::string& path);
  using Environment = std::vector<std::pair<std::string, std::string>>;
  [[nodiscard]] static Environment environment_of_process();
  // Sets the keys that the environment has variables for. An unknown variable that begins with CAIRN_ is an error. A call
  // that fails changes nothing.
  [[nodiscard]] Status apply(const Environment& environment);
  // set("host.size", "8GiB")
  [[nodiscard]] Status set(std::string_view key, std::string_view value);

  // Checks every value, and that the values fit together.
  [[nodiscard]] Status validate() const;
  [[nodiscard]] KvShape shape() const;
  // model.groups over block_size. Fails as validate() does.
  [[nodiscard]] Result<CacheGroups> groups() const;
  // [model] and the block size: blocks of different namespaces never match.
  [[nodiscard]] Namespace space() const;
  // The secret in model.secret or model.secret_file; std::nullopt if neither is given.
  [[nodiscard]] Result<std::optional<KeySecret>> key_secret() const;
  // remote.password, or what remote.password_file holds, without the end of the line.
  [[nodiscard]] Result<std::string> remote_password() const;
  // A TOML file with every key and a comment that explains it, without secrets; from_toml() reads it back.
  [[nodiscard]] std::string to_toml() const;
};

// Where read_config() reads a configuration from. Later members override earlier ones.
struct ConfigSources {
  ManagerConfig defaults = {};           // used if neither `toml` nor `file` is given
  std::optional<std::string> toml = {};  // TOML text
  std::string toml_name = "config";      // what messages call `toml`
  std::string file = {};                 // the path of a TOML file, instead of `toml`; empty for none
  ManagerConfig::Environment environment = {};
  std::vector<std::string> settings = {};  // as on a command line: "host.size=8GiB"
};
// Reads all sources. The caller still has to call validate(), directly or by making a manager. If a source has a mistake, the
// error lists the mistakes of all sources, and values that do not fit together.
[[nodiscard]] Result<ManagerConfig> read_config(const ConfigSources& sources);

}  // namespace cairn
