// ManagerConfig: what a KvBlockManager is made of: the model's shape, the tiers and how blocks move between them.
//
// Does:     one struct with defaults that work; filled in by hand, from a TOML file, from the environment, or all three,
//           the later over the earlier. Keys are the same everywhere: `host.size` in errors, `[host] size` in the file,
//           CAIRN_HOST_SIZE in the environment.
// Threads:  plain values.
// Fails:    a key that is not known, a value that does not parse or is out of its range, keys that contradict each other:
//           every error names the key, what it was and what it may be.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cairn/base/clock.h"
#include "cairn/base/result.h"
#include "cairn/evict/eviction_policy.h"
#include "cairn/layout/block_layout.h"
#include "cairn/layout/kv_shape.h"
#include "cairn/memory/system_region.h"
#include "cairn/offload/offload_options.h"
#include "cairn/onboard/onboard_options.h"
#include "cairn/pool/block_pool.h"
#include "cairn/tier/disk_opening.h"
#include "cairn/tier/tier_health.h"
#include "cairn/tokens/key_secret.h"
#include "cairn/tokens/namespace.h"
#include "cairn/transfer/io_backend.h"

namespace cairn {

// [model]: whose blocks, and what is in one.
struct ModelConfig {
  std::string name = "model";  // part of the namespace, as is all that follows
  std::string tenant = {};
  std::uint64_t weights_generation = 0;
  std::string shard = {};  // "tp0/2"; empty for all of it
  KeyScheme scheme = KeyScheme::kNative;
  // What keys are made with, as 64 hexadecimal digits, or a file that holds them; not both. Neither: what the disk tier's
  // file has, or a random one. Never printed, and not part of the namespace.
  std::string secret = {};
  std::string secret_file = {};
  std::uint32_t layers = 0;
  std::uint32_t kv = 2;  // 1 for what is kept in one piece
  std::uint32_t heads = 0;
  std::uint32_t head_size = 0;
  std::string element_type = "bf16";  // gives the bits: f32, bf16, f16, fp8_e4m3, fp8_e5m2, int8, int4 and so on
};

// Of every tier.
struct TierConfig {
  std::uint32_t blocks = 0;  // one of the two is given; 0 and 0: there is no such tier
  std::uint64_t size = 0;    // bytes, "64GiB"
  PolicyKind policy = PolicyKind::kAdaptive;
  bool leaves_first = true;
  [[nodiscard]] bool is_there() const { return blocks != 0 || size != 0; }
};

enum class DeviceMemory : std::uint8_t {
  kGpu,
  kSystem,  // pages of this process in the place of a GPU: machines without one
};

// [device], G1
struct DeviceConfig : TierConfig {
  DeviceMemory memory = DeviceMemory::kGpu;
  int gpu = 0;
  Arrangement layout = Arrangement::kContiguousNhd;
  Duplicates duplicates = Duplicates::kReject;
  // The engine's own memory, described: no key, the program that has the engine gives it. Gives blocks, and with them the
  // layout.
  BlockLayoutPtr engine_layout = {};
  // The engine says which block holds what; there is no pool of ours (engine_layout is given then). No key either.
  bool managed_by_engine = false;
};

enum class Pinning : std::uint8_t { kPreferred, kRequired, kOff };

// [host], G2
struct HostConfig : TierConfig {
  std::uint64_t max_size = 0;  // that it may be resized to; 0: what it begins with
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
  std::uint64_t scrub_rate = 0;  // bytes a second that are read to find damaged blocks; 0: none (tier/disk_scrub.h)
};

struct ManagerConfig {
  std::uint64_t worker_id = 0;
  std::uint32_t block_size = 16;    // tokens
  std::uint32_t event_log = 65536;  // events that followers may lag behind; 0: no events
  ModelConfig model;
  DeviceConfig device;
  HostConfig host;
  DiskConfig disk;
  OffloadOptions offload_to_host;  // [offload.host]: from the device
  OffloadOptions offload_to_disk;  // [offload.disk]: from the host, or from the device where there is no host
  OnboardOptions onboard;          // [onboard]
  TierHealth::Options health;      // [health]: when a tier is taken out, and tried again
  Duration shutdown = std::chrono::seconds(5);  // that a stop waits for what is under way

  [[nodiscard]] static Result<ManagerConfig> from_toml(std::string_view text, std::string_view file_name);
  [[nodiscard]] static Result<ManagerConfig> from_file(const std::string& path);
  // Over what is there already. A variable that begins with CAIRN_ and is neither a key of ours nor one that another part
  // of Cairn reads is an error.
  using Environment = std::vector<std::pair<std::string, std::string>>;
  [[nodiscard]] static Environment environment_of_process();
  [[nodiscard]] Status apply(const Environment& environment);
  // One key as in errors, for command lines: "host.size=8GiB".
  [[nodiscard]] Status set(std::string_view key, std::string_view value);

  // All of it together; fills in nothing.
  [[nodiscard]] Status validate() const;
  [[nodiscard]] KvShape shape() const;
  // What separates these blocks from others: everything of [model] and the block size.
  [[nodiscard]] Namespace space() const;
  // What model.secret or model.secret_file says; std::nullopt if neither is given.
  [[nodiscard]] Result<std::optional<KeySecret>> key_secret() const;
  // The whole as a TOML file that from_toml() reads back, each key with its comment: what `cairn config` shows. Secrets
  // are left out.
  [[nodiscard]] std::string to_toml() const;
};

}  // namespace cairn
